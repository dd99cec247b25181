"""Experiments: a share of a tenant's questions is answered by a second configuration, or asked of it in the shadow."""

from kosmos_rag.experiments.asking import Experiments, Trial
from kosmos_rag.experiments.tenant_experiments import TenantExperiments

__all__ = ["Experiments", "TenantExperiments", "Trial"]
