# A database for kosmos-rag: docs/how-to/alloydb.md
resource "google_alloydb_cluster" "kosmos" {
  cluster_id = "kosmos"
  location   = var.region

  network_config {
    network = var.network
  }

  initial_user {
    user     = "postgres"
    password = var.admin_password
  }
}

resource "google_alloydb_instance" "primary" {
  cluster       = google_alloydb_cluster.kosmos.name
  instance_id   = "primary"
  instance_type = "PRIMARY"

  machine_config {
    cpu_count = 4
  }
}

variable "region" { type = string }
variable "network" { type = string }
variable "admin_password" {
  type      = string
  sensitive = true
}

output "address" { value = google_alloydb_instance.primary.ip_address }
