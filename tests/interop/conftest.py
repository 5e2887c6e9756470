import pytest

pytest.register_assert_rewrite("sdk_checks")
