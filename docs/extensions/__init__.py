"""Extensions of Sphinx that the site is built with."""
