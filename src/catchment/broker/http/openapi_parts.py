"""What a description in OpenAPI is made of: the pieces that several routes share."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

TEXT: Final[Json] = {"type": "string"}
TEXTS: Final[Json] = {"type": "array", "items": TEXT}
WHOLE: Final[Json] = {"type": "integer"}


def ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def content(schema: Json, media_type: str = "application/json") -> Json:
    return {"content": {media_type: {"schema": schema}}}


def answered(description: str, schema: Json, media_type: str = "application/json") -> Json:
    return {"description": description, **content(schema, media_type)}


def refused(description: str) -> Json:
    return answered(description, ref("Problem"), "application/problem+json")


def parameter(name: str, place: str, description: str, schema: Json) -> Json:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": description,
        "schema": schema,
    }


def object_of(required: list[str], **properties: Json) -> Json:
    return {"type": "object", "required": required, "properties": properties}


ID: Final = parameter("id", "path", "The id of a subscription", TEXT)
LIMIT: Final = parameter(
    "limit",
    "query",
    "How many to return at most",
    {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
)
