"""What went wrong, where nurseries have put it into groups."""


def sole_cause(error: BaseException) -> BaseException:
    """The one exception inside nested groups of one, which nurseries make of what is raised within; else `error`."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
