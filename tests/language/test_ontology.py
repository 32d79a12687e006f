"""Ontologies in YAML and as RDF: classes, situations, places, units, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.definitions.files import load
from nearcast.language.definitions.ontology_documents import ontology_data, read_ontology
from nearcast.language.nodes import DocumentReader, from_data, from_yaml
from nearcast.model.ontology import Area, ContextClass, Ontology, SituationClass

YAML = """\
classes:
  Weather:
  Temperature: {is: Weather, unit: degC, range: [-90, 2000], within: 100, attributes: {temp: degF, t: null}}
  Humidity: {is: [Weather], unit: percent, range: [0, null]}
situations:
  Hazard: {}
  Fire: {is: Hazard}
places:
  building-7: {area: "POLYGON((0 0, 50 0, 50 50, 0 0))"}
  room-1: {part-of: building-7, entities: [node-1]}
"""
TURTLE = """\
@prefix : <https://example.org/weather#> .
@prefix n: <urn:nearcast:> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix geo: <http://www.opengis.net/ont/geosparql#> .
@prefix dcterms: <http://purl.org/dc/terms/> .

:Weather a owl:Class ; rdfs:subClassOf n:Context ; rdfs:label "weather"@en .
:Temperature a owl:Class ; rdfs:subClassOf :Weather ; n:unit "degC" ; n:minimum -90 ; n:maximum 2000.5 ;
    n:within 100 ; n:attribute "temp", "t" .
:Hazard a owl:Class ; rdfs:subClassOf n:Situation .
:Fire rdfs:subClassOf :Hazard , [ a owl:Restriction ] .
:room-1 dcterms:isPartOf :building-7 ; n:entity "node-1" .
:building-7 geo:asWKT "<http://www.opengis.net/def/crs/OGC/1.3/CRS84> POLYGON((0 0, 50 0, 50 50, 0 0))" .
"""
RDF_XML = """\
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#"
         xmlns:owl="http://www.w3.org/2002/07/owl#">
  <owl:Class rdf:about="https://example.org/w#Temperature">
    <rdfs:subClassOf rdf:resource="https://example.org/w#Weather"/>
  </owl:Class>
  <owl:Class rdf:about="https://example.org/w#Fire">
    <rdfs:subClassOf rdf:resource="https://example.org/w#Situation"/>
  </owl:Class>
</rdf:RDF>
"""


def read(text: str) -> tuple[Ontology, list[Fault]]:
    """The ontology of a YAML text, and what is wrong with it."""
    reader = DocumentReader()
    return read_ontology(from_yaml(text, "o.yaml"), reader), reader.faults


def loaded(folder: Path, name: str, text: str) -> Ontology:
    """The ontology of a file that definitions name."""
    (folder / name).write_text(text, encoding="utf-8")
    (folder / "d.yaml").write_text(f"ontology: {name}\n", encoding="utf-8")
    return load([folder / "d.yaml"]).settings.ontology


def faults(folder: Path, name: str, text: str) -> list[Fault]:
    """What is wrong with an ontology's file."""
    with pytest.raises(DefinitionError) as caught:
        loaded(folder, name, text)
    return caught.value.faults


def test_an_ontology_in_yaml(tmp_path: Path) -> None:
    """Classes with units, ranges, attributes; situations; places and their parts."""
    expected = Ontology(
        (
            ContextClass("Weather"),
            ContextClass("Temperature", ("Weather",), "degC", -90, 2000, 100, (("temp", "degF"), ("t", None))),
            ContextClass("Humidity", ("Weather",), "percent", 0, None),
        ),
        (SituationClass("Hazard"), SituationClass("Fire", ("Hazard",))),
        (
            Area("building-7", None, "POLYGON((0 0, 50 0, 50 50, 0 0))"),
            Area("room-1", "building-7", None, ("node-1",)),
        ),
    )
    assert expected == loaded(tmp_path, "weather.yaml", YAML)


def test_a_document_gives_the_same_again() -> None:
    """An ontology travels as a document, in control events say."""
    found, _ = read(YAML)
    reader = DocumentReader()
    assert found == read_ontology(from_data(ontology_data(found), Mark("here")), reader)
    assert [] == reader.faults


def test_an_ontology_in_turtle(tmp_path: Path) -> None:
    """Subclasses of nearcast's Context and Situation, part-of, and what is said of classes by nearcast's properties."""
    expected = Ontology(
        (
            ContextClass("Temperature", ("Weather",), "degC", -90, 2000.5, 100, (("t", None), ("temp", None))),
            ContextClass("Weather"),
        ),
        (SituationClass("Fire", ("Hazard",)), SituationClass("Hazard")),
        (
            Area("building-7", None, "POLYGON((0 0, 50 0, 50 50, 0 0))"),
            Area("room-1", "building-7", None, ("node-1",)),
        ),
    )
    assert expected == loaded(tmp_path, "weather.ttl", TURTLE)


@pytest.mark.parametrize("ending", ["rdf", "owl"])
def test_an_ontology_in_rdf_xml(tmp_path: Path, ending: str) -> None:
    """Without words of ours every class is one of readings, but those below one called Situation."""
    expected = Ontology((ContextClass("Temperature", ("Weather",)), ContextClass("Weather")), (SituationClass("Fire"),))
    assert expected == loaded(tmp_path, f"weather.{ending}", RDF_XML)


PARTS_YAML = """\
classes: {Air: {}, Smoke: {part-of: Air}}
situations: {Emergency: {}, Fire: {part-of: [Emergency]}}
places: {room: {part-of: house}, house: {}}
"""
PARTS_TURTLE = """\
@prefix n: <urn:nearcast:> . @prefix : <urn:x:> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix dcterms: <http://purl.org/dc/terms/> .
@prefix obo: <http://purl.obolibrary.org/obo/> .
:Air rdfs:subClassOf n:Context .
:Smoke rdfs:subClassOf n:Context .
:Emergency rdfs:subClassOf n:Situation .
:Fire rdfs:subClassOf n:Situation .
:house dcterms:hasPart :room .
"""
STATED = (
    ":Smoke dcterms:isPartOf :Air . :Fire n:partOf :Emergency .",
    ":Air dcterms:hasPart :Smoke . :Fire obo:BFO_0000050 :Emergency .",
    ":Smoke rdfs:subClassOf [a owl:Restriction; owl:onProperty obo:BFO_0000050; owl:someValuesFrom :Air] ."
    ":Emergency obo:BFO_0000051 :Fire .",
)


@pytest.mark.parametrize("stated", STATED)
def test_classes_and_situations_are_part_of_others(tmp_path: Path, stated: str) -> None:
    """In YAML, and in RDF by Dublin Core, by the Basic Formal Ontology, either way round, or as a restriction."""
    found = loaded(tmp_path, "parts.yaml", PARTS_YAML)
    assert (ContextClass("Air"), ContextClass("Smoke", wholes=("Air",))) == found.classes
    assert (SituationClass("Emergency"), SituationClass("Fire", (), ("Emergency",))) == found.situations
    turtle = loaded(tmp_path, "parts.ttl", PARTS_TURTLE + stated)
    assert (found.classes, found.situations) == (turtle.classes, turtle.situations)
    assert {"room": ("house",), "house": ()} == found.wholes() == turtle.wholes()
    reader = DocumentReader()
    assert found == read_ontology(from_data(ontology_data(found), Mark("here")), reader)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("w.ttl", "@prefix : <x> .\n:a :b ] .\n:c :d :e .\n", 2),
        ("w.rdf", "<rdf:RDF>", 1),
        ("w.yaml", "classes: {\n", 2),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, name: str, text: str, line: int) -> None:
    """A file that cannot be parsed is a fault in that file, near where the parser stopped."""
    (found,) = faults(tmp_path, name, text)
    assert found.where is not None
    assert (str(tmp_path / name), line) == (found.where.file, found.where.line)


CONVERTED = "readings in others are converted: name that unit in attributes, or beside the value"


@pytest.mark.parametrize(
    ("text", "expected", "advice"),
    [
        ("classes: {A: {is: B}}", "a class that is defined", "defined are A"),
        ("classes: {Weather: {}, A: {is: Wether}}", "a class that is defined", "did you mean Weather?"),
        ("classes: {A: {unit: celcius}}", "a unit of measure", "did you mean celsius?"),
        ("classes: {A: {unit: 7}}", "unit: a text", "put it in quotes"),
        ("classes: {A: {unit: degC, attributes: {t: m}}}", "a unit that converts into degC", ""),
        (
            "classes: {A: {unit: degC}, B: {is: A}, C: {is: B, unit: degF}}",
            "the unit of B, degC, which C is",
            CONVERTED,
        ),
        ("classes: {A: {range: [5, 1]}}", "a range that begins with the least value", ""),
        ("classes: {A: {range: [5]}}", "[least, greatest]", ""),
        ("classes: {A: {within: -1}}", "within, in metres: a finite number, 0 or more", ""),
        ("classes: {A: {unti: m}}", "a field of A", "did you mean unit?"),
        ("classes: {A: {attributes: [x]}, B: {attributes: [x]}}", "an attribute of one class", "A has it"),
        ("{classes: {A: {}}, situations: {A: {}}}", "a name that no class has", ""),
        ("classes: {A: {part-of: B}}", "a class that is defined", "defined are A"),
        ("{classes: {A: {}}, situations: {B: {part-of: A}}}", "a situation", "what is concluded is no reading"),
        ("situations: {A: {is: B}}", "a class that is defined", "defined are A"),
        ("places: {A: {part-of: B}}", "a place that is defined", "defined are A"),
        ("places: {A: {area: POLYGON}}", "a geometry in WKT", "for example: POLYGON((0 0, 10 0, 10 10, 0 0))"),
    ],
)
def test_what_is_wrong_is_told(text: str, expected: str, advice: str) -> None:
    """Unknown names and units come with the closest that there is."""
    (found,) = read(text)[1]
    assert (expected, advice) == (found.expected, found.advice)


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("classes: {A: {is: B}, B: {is: C}, C: {is: B}}", "B → C → B"),
        ("situations: {A: {is: A}}", "A → A"),
        ("situations: {A: {part-of: B}, B: {is: A}}", "A → B → A"),
        ("places: {A: {part-of: B}, B: {part-of: A}}", "A → B → A"),
    ],
)
def test_cycles_are_told_with_their_way(text: str, way: str) -> None:
    """Nothing is one of itself, nor part of itself."""
    (found,) = read(text)[1]
    assert way == found.came


def test_every_cycle_is_told() -> None:
    """Each way back by itself: mending one does not bring up the next."""
    _, found = read("classes: {A: {is: B}, B: {is: A}, C: {is: C}}\nsituations: {S: {is: T}, T: {is: S}}\n")
    assert ["A → B → A", "C → C", "S → T → S"] == [one.came for one in found]


def test_what_is_known_is_cut_with_a_count() -> None:
    """Ten names are told, and how many there are besides; a class of readings is no situation."""
    names = [f"Class{number}" for number in range(12)]
    (found,) = read(f"classes: {{{', '.join(f'{name}: {{}}' for name in names)}, X: {{is: Whatever}}}}\n")[1]
    assert found.advice == f"defined are {', '.join(names[:10])} and 3 more"
    (found,) = read("classes: {A: {}}\nsituations: {S: {is: A}}\n")[1]
    assert ("a situation", "A, a class of readings") == (found.expected, found.came)
    (found,) = read("classes: {A: {attributes: 5}}\n")[1]
    assert "attributes: a list, or a mapping to units" == found.expected


def test_a_number_with_its_unit_is_told_to_be_a_number() -> None:
    """Of metres, as the field says."""
    (found,) = read("classes: {A: {within: 50 m}}\n")[1]
    assert "it is a number of metres, as in 50" == found.advice


def test_broken_turtle_is_told_in_words(tmp_path: Path) -> None:
    """What the parser says is wrong, and its line; not the bytes around it."""
    (tmp_path / "o.ttl").write_text("@prefix : <urn:x:> .\nthis is not turtle <\n", encoding="utf-8")
    (tmp_path / "d.yaml").write_text("ontology: o.ttl\n", encoding="utf-8")
    with pytest.raises(DefinitionError) as caught:
        load([tmp_path / "d.yaml"])
    (found,) = caught.value.faults
    assert "b'" not in found.came and "Keyword 'this'" in found.came
    assert found.where is not None and 2 == found.where.line


def rdf_xml(declared: str, used: str) -> str:
    """An ontology of one class, whose document type declares entities and whose label uses them."""
    return f"""<?xml version="1.0"?>
<!DOCTYPE rdf:RDF {declared}>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#"
 xmlns:owl="http://www.w3.org/2002/07/owl#">
<owl:Class rdf:about="urn:a#Heat"><rdfs:label>{used}</rdfs:label></owl:Class></rdf:RDF>"""


LAUGHS = "".join(f'<!ENTITY a{number} "{f"&a{number - 1};" * 10}">\n' for number in range(1, 10))


@pytest.mark.parametrize(
    "declared, used, came",
    [
        (f'[<!ENTITY a0 "ha">\n{LAUGHS}]', "&a9;", "the entity a1, which is long or refers to others"),
        ('[<!ENTITY a "&#38;b;"><!ENTITY b "&#38;a;">]', "&a;", "the entity a, which is long or refers to others"),
        (f'[<!ENTITY a "{"ha" * 1_000}">]', "&a;", "the entity a, which is long or refers to others"),
        (f'[<!ENTITY a "{"ha" * 500}">]', "&a;" * 20_000, "20,000,000"),
        ('[<!ENTITY a SYSTEM "file:///etc/hostname">]', "&a;", "the entity a, which stands elsewhere"),
        ('[<!ENTITY % a SYSTEM "http://127.0.0.1:9/"> %a;]', "", "the entity a, which stands elsewhere"),
        ('SYSTEM "http://127.0.0.1:9/a.dtd"', "", "a document type that is elsewhere"),
    ],
    ids=["within one another", "in a circle", "long", "often", "a file", "a parameter", "a document type"],
)
def test_entities_that_grow_or_fetch_are_refused_before_they_do(
    tmp_path: Path, declared: str, used: str, came: str
) -> None:
    """By their declarations alone: those within one another would stand for a thousand million letters."""
    [fault] = faults(tmp_path, "o.owl", rdf_xml(declared, used))
    assert came in fault.came


def test_entities_that_abbreviate_are_read(tmp_path: Path) -> None:
    """As editors of ontologies write them."""
    text = rdf_xml('[<!ENTITY a "urn:a#">]', "&a;Heat").replace('about="urn:a#Heat"', 'about="&a;Heat"')
    assert (ContextClass("Heat"),) == loaded(tmp_path, "o.owl", text).classes
