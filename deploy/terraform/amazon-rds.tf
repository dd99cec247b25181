# A database for kosmos-rag: docs/how-to/amazon-rds.md
resource "aws_db_instance" "kosmos" {
  identifier                  = "kosmos"
  engine                      = "postgres"
  engine_version              = "17"
  instance_class              = "db.m7g.large"
  allocated_storage           = 100
  storage_encrypted           = true
  db_name                     = "kosmos"
  username                    = "kosmos_admin"
  manage_master_user_password = true
  db_subnet_group_name        = var.subnet_group
  vpc_security_group_ids      = [var.security_group]
  backup_retention_period     = 7
  final_snapshot_identifier   = "kosmos-final"
}

variable "subnet_group" { type = string }
variable "security_group" { type = string }

output "address" { value = aws_db_instance.kosmos.endpoint }
