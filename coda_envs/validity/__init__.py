"""Physical validity: named checks in order, bounded repair, and the certificate they leave."""

from coda_envs.validity.certificate import (
    CHECKS,
    FAMILY_ERROR,
    REASONS,
    Certificate,
    Check,
    engine_fingerprint,
)
from coda_envs.validity.certify import validate
from coda_envs.validity.family_code import FamilyCodeError, family_code
from coda_envs.validity.held_out import accept_for_training
from coda_envs.validity.repairs import REPAIRABLE, Repair, repair

__all__ = [
    "CHECKS",
    "FAMILY_ERROR",
    "REASONS",
    "REPAIRABLE",
    "Certificate",
    "Check",
    "FamilyCodeError",
    "Repair",
    "accept_for_training",
    "engine_fingerprint",
    "family_code",
    "repair",
    "validate",
]
