"""Print the OpenAPI document of the service.

python -m kosmos_rag.apps.http > openapi.json
"""

import json
import sys

from kosmos_rag.apps.http.app import describe_api

json.dump(describe_api(), sys.stdout)
