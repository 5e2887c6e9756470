"""Has the assertions of the shared checks explained where they fail."""

import pytest

pytest.register_assert_rewrite("sdk_checks")
