"""What filters mean: three truths, operators, expressions, the plain evaluator, the normal form."""
