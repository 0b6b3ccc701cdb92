"""From raw text to tags: text features, lists of tags as matrices, and the tagger that joins both with a model."""
