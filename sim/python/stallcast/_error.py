"""What goes wrong."""


class Error(RuntimeError):
    """Its text is the line that the command would print: where, the problem and the remedy.

    usage: the call itself was wrong, as the command's exit status 2 says."""

    def __init__(self, text: str, problem: str = "", where: str = "", remedy: str = "",
                 usage: bool = False):  # fmt: skip
        super().__init__(text)
        self.problem = problem
        self.where = where
        self.remedy = remedy
        self.usage = usage


Error.__module__ = "stallcast"
