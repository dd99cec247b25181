# A database for kosmos-rag: docs/how-to/supabase.md
terraform {
  required_providers {
    supabase = { source = "supabase/supabase" }
  }
}

resource "supabase_project" "kosmos" {
  organization_id   = var.organization
  name              = "kosmos"
  region            = "eu-central-1"
  instance_size     = "medium"
  database_password = var.admin_password
}

variable "organization" { type = string }
variable "admin_password" {
  type      = string
  sensitive = true
}

output "address" { value = "db.${supabase_project.kosmos.id}.supabase.co" }
