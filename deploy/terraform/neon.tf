# A database for kosmos-rag: docs/how-to/neon.md
terraform {
  required_providers {
    neon = { source = "kislerdm/neon" }
  }
}

resource "neon_project" "kosmos" {
  name       = "kosmos"
  pg_version = 17
  region_id  = "aws-eu-central-1"

  branch {
    database_name = "kosmos"
    role_name     = "kosmos_admin"
  }

  default_endpoint_settings {
    autoscaling_limit_min_cu = 1
    autoscaling_limit_max_cu = 2
  }
}

output "admin_url" {
  value     = neon_project.kosmos.connection_uri
  sensitive = true
}
