"""Number of examples of a property: 25 in the ordinary run, 100 or more with --hypothesis-profile=thorough."""

from hypothesis import HealthCheck, settings

FAST, THOROUGH = 25, 100


def register_profiles() -> None:
    """Register both profiles and load the fast one, which --hypothesis-profile overrides."""
    for name, number in (("fast", FAST), ("thorough", THOROUGH)):
        settings.register_profile(
            name, max_examples=number, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        )
    settings.load_profile("fast")


def examples(number: int) -> settings:
    """Return settings with `number` examples in the thorough profile, for a property that needs more than it gives."""
    thorough = settings.get_current_profile_name() == "thorough"
    return settings(max_examples=number if thorough else FAST)
