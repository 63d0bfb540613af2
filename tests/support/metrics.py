"""A scrape, taken apart."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

Samples = Mapping[str, float]
"""`name{label="value",…}` with its labels in order → its value."""


def samples(text: str) -> Samples:
    """Every sample of a scrape."""
    return {
        _named(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def names(text: str) -> set[str]:
    """Every name that a query may ask for, also of what was never counted yet."""
    found = set()
    for family in text_string_to_metric_families(text):
        suffixes = {
            "counter": ("_total",),
            "histogram": ("_bucket", "_sum", "_count"),
            "summary": ("_sum", "_count"),
        }.get(family.type, ("",))
        found |= {family.name + suffix for suffix in suffixes}
    return found


def _named(name: str, labels: Mapping[str, str]) -> str:
    told = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{told}}}" if told else name
