"""What `check` says of a database; a harness that injects faults asserts that it is nothing."""

from reservation_service.storage.invariants import PLAN_RULES, ROW_RULES, violations, violations_in

__all__ = ["PLAN_RULES", "ROW_RULES", "violations", "violations_in"]
