import pytest

pytest.register_assert_rewrite("conformance.suite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tracing takes seconds: by default every method with its own settings, the other cases in the long suite."""
    for item in items:
        if "test_its_graphs" in item.name and "/" in item.name:
            item.add_marker(pytest.mark.long)
