#!/usr/bin/env bash
# Mirror the bucket once, and end with 1 if a document failed.
set -euo pipefail
kosmos-rag enqueue --source "$(dirname "$0")/source.yaml" --tenant acme --collection handbook
kosmos-rag worker --until-idle
kosmos-rag jobs runs --tenant acme
