"""Request bodies of every media type, turned into Arrow drafts."""
