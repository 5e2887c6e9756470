"""What can be wrong with what an author registers."""


class RegistrationError(ValueError):
    """A tool, resource, prompt or completion cannot be registered as written: the author's fault.

    Raised while the program starts (or when something is added at run time), never while a client waits.
    The message names the thing, the rule and the way out.
    """
