"""Contract suites that ship with the package: a strategy of your own can be held to the same promises."""
