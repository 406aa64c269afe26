"""The rows of the table, one file for each family. Each file has `rows(bench) -> list[Row]`."""
