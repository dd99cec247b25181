# A database for kosmos-rag: docs/how-to/cloud-sql.md
resource "google_sql_database_instance" "kosmos" {
  name             = "kosmos"
  database_version = "POSTGRES_17"
  region           = var.region

  settings {
    edition = "ENTERPRISE"
    tier    = "db-custom-4-16384"

    backup_configuration {
      enabled                        = true
      point_in_time_recovery_enabled = true
    }

    ip_configuration {
      ipv4_enabled    = false
      private_network = var.network
    }
  }
}

resource "google_sql_user" "admin" {
  name     = "kosmos_admin"
  instance = google_sql_database_instance.kosmos.name
  password = var.admin_password
}

variable "region" { type = string }
variable "network" { type = string }
variable "admin_password" {
  type      = string
  sensitive = true
}

output "address" { value = google_sql_database_instance.kosmos.private_ip_address }
