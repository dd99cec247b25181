# A database for kosmos-rag: docs/how-to/azure-postgresql.md
resource "azurerm_postgresql_flexible_server" "kosmos" {
  name                   = "kosmos"
  resource_group_name    = var.resource_group
  location               = var.location
  version                = "17"
  sku_name               = "GP_Standard_D4s_v3"
  storage_mb             = 131072
  administrator_login    = "kosmos_admin"
  administrator_password = var.admin_password
  backup_retention_days  = 7
}

resource "azurerm_postgresql_flexible_server_configuration" "extensions" {
  name      = "azure.extensions"
  server_id = azurerm_postgresql_flexible_server.kosmos.id
  value     = "VECTOR"
}

variable "resource_group" { type = string }
variable "location" { type = string }
variable "admin_password" {
  type      = string
  sensitive = true
}

output "address" { value = azurerm_postgresql_flexible_server.kosmos.fqdn }
