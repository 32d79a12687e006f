"""Files of ontologies: YAML, or RDFS and OWL as Turtle or RDF/XML."""

from __future__ import annotations

from pathlib import Path

from nearcast.language.nodes import from_data, from_yaml
from nearcast.language.ontology_document import read_ontology
from nearcast.language.ontology_rdf import FORMATS, read_rdf
from nearcast.language.reading import Reader, at
from nearcast.model.ontology import Ontology


def read_ontology_file(text: str, path: Path, reader: Reader) -> Ontology:
    """The ontology of a file's text, read as its ending says. Raises `Fault` or `DefinitionError` where it is no RDF
    or no YAML; what is wrong with the ontology itself goes to the reader.
    """
    if path.suffix.lower() not in FORMATS:
        return read_ontology(from_yaml(text, str(path)), reader)
    where = at(str(path))
    return read_ontology(from_data(read_rdf(text, path, where), where), reader)
