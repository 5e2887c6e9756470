"""Which tests say nothing over a link, and why: they are not run with ``--forward-all``; and which say nothing anew through another shell."""

import pytest

OWN_PROCESSES = pytest.mark.once("it has processes of its own")
NO_CLIENT = pytest.mark.once("it has no client")
OWN_WAY = pytest.mark.one_shell("its clients speak as it says itself")
ONE_BUDGET = pytest.mark.at_home("both ends of a link would share one budget, and all would count twice")
KEPT_AS_WELL = pytest.mark.at_home("what is held is in the directory as well, where there is one")
HANDED_OVER = pytest.mark.at_home("a process that drains hands its sessions over, where there is a directory")
ONE_PIECE = pytest.mark.at_home("what is said to another process goes over a stream")
READ_WHOLE = pytest.mark.at_home("what is passed on to another process is read before it is judged")
LIVES_ON = pytest.mark.at_home(
    "where there are other processes, one of them may have the session of one that has ended"
)
IN_TURN = pytest.mark.at_home(
    "both ends of a link are one process, which computes before it reads what it has answered"
)
A_MOMENT_LATER = pytest.mark.at_home("what is relayed ends a moment after its connection has")
RELAYED = pytest.mark.at_home("who relays an answer does not know whose it is")
CONTAINED = pytest.mark.at_home("what is raised for a client of another process ends nothing here")
REMEMBERED = pytest.mark.at_home(
    "thousands of heads that have come over links are remembered, and then forgotten at once"
)
ACTORS = pytest.mark.at_home("it counts the actors of a request whose client is connected here")
CALLER = pytest.mark.at_home("the task and the context of who calls the application are in another process")
SHOWN_ONCE_KEPT = pytest.mark.at_home("of a store that processes share, an end is shown once it is kept")
