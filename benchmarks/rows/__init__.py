"""The rows of the table, a file a family. Each gives `rows(bench) -> list[Row]`."""
