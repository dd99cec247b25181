# A database for kosmos-rag: docs/how-to/amazon-aurora.md
resource "aws_rds_cluster" "kosmos" {
  cluster_identifier          = "kosmos"
  engine                      = "aurora-postgresql"
  engine_version              = "17.5"
  database_name               = "kosmos"
  master_username             = "kosmos_admin"
  manage_master_user_password = true
  storage_encrypted           = true
  db_subnet_group_name        = var.subnet_group
  vpc_security_group_ids      = [var.security_group]
  final_snapshot_identifier   = "kosmos-final"
}

resource "aws_rds_cluster_instance" "kosmos" {
  identifier         = "kosmos-1"
  cluster_identifier = aws_rds_cluster.kosmos.id
  engine             = aws_rds_cluster.kosmos.engine
  engine_version     = aws_rds_cluster.kosmos.engine_version
  instance_class     = "db.r7g.large"
}

variable "subnet_group" { type = string }
variable "security_group" { type = string }

output "writer" { value = aws_rds_cluster.kosmos.endpoint }
output "reader" { value = aws_rds_cluster.kosmos.reader_endpoint }
