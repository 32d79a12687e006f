"""How people write the model: CQL2 text, thesis XML, YAML definitions, CloudEvents; every fault with its place."""
