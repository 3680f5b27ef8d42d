import pytest

pytest.register_assert_rewrite("conformance.suite")
SHORT = ("protonet", "peeler", "att-g", "gel", "frozen-gel", "mahalanobis", "oslo")  # one of each kind


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tracing takes seconds: by default one method of each kind with its own settings, the others in the long suite."""
    for item in items:
        name, _, case = item.name.partition("[")
        if name.startswith("test_its_graphs") and case and case.removesuffix("]") not in SHORT:
            item.add_marker(pytest.mark.long)
