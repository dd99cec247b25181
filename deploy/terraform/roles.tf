# The four roles of kosmos-rag, where `kosmos-rag migrate` shall not create them.
terraform {
  required_providers {
    postgresql = { source = "cyrilgdn/postgresql" }
  }
}

resource "postgresql_role" "kosmos" {
  for_each = toset(["kosmos_owner", "kosmos_app", "kosmos_worker", "kosmos_backup"])
  name     = each.key
  login    = each.key != "kosmos_owner"
  password = lookup(var.passwords, each.key, null)
}

resource "postgresql_grant_role" "admin" {
  for_each          = postgresql_role.kosmos
  role              = var.admin
  grant_role        = each.value.name
  with_admin_option = true
}

variable "admin" { type = string }
variable "passwords" { # of kosmos_app and kosmos_worker
  type      = map(string)
  sensitive = true
}
