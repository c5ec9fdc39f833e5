#!/usr/bin/env python3
"""check_schema.py SCHEMA CONFIGURATION...: whether configurations are what a
JSON Schema describes, by code of its own, and by the `jsonschema` package where
that is installed. A line for each: "FILE: valid" or "FILE: invalid"; last comes
"jsonschema: same", or "absent". Both must agree, and the schema be one itself;
else the exit status is 1."""
import json
import sys


def is_type(x, name):
    if name == "integer":
        return isinstance(x, (int, float)) and not isinstance(x, bool) \
            and float(x).is_integer()
    if name == "number":
        return isinstance(x, (int, float)) and not isinstance(x, bool)
    return isinstance(x, {"object": dict, "array": list, "string": str,
                          "boolean": bool}[name])


KNOWN = {"type", "properties", "additionalProperties", "required", "items",
         "minimum", "maximum", "enum", "anyOf", "$schema", "title"}


def fits(x, s):
    assert set(s) <= KNOWN, set(s) - KNOWN
    if "anyOf" in s and not any(fits(x, one) for one in s["anyOf"]):
        return False
    if "enum" in s and x not in s["enum"]:
        return False
    if "type" in s and not is_type(x, s["type"]):
        return False
    if is_type(x, "number") and not (s.get("minimum", x) <= x <=
                                     s.get("maximum", x)):
        return False
    if isinstance(x, list) and "items" in s:
        return all(fits(one, s["items"]) for one in x)
    if isinstance(x, dict):
        known, rest = s.get("properties", {}), s.get("additionalProperties")
        if any(key not in x for key in s.get("required", [])):
            return False
        for key, value in x.items():
            if key in known:
                if not fits(value, known[key]):
                    return False
            elif rest is False or (rest and not fits(value, rest)):
                return False
    return True


def main(schema, paths):
    with open(schema, encoding="utf-8") as f:
        s = json.load(f)
    try:
        import jsonschema
        jsonschema.Draft202012Validator.check_schema(s)
        other = jsonschema.Draft202012Validator(s)
    except ImportError:
        other = None
    for path in paths:
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        ours = fits(config, s)
        if other and other.is_valid(config) != ours:
            sys.exit(f"{path}: jsonschema says {not ours}")
        print(f"{path}: {'valid' if ours else 'invalid'}")
    print("jsonschema:", "same" if other else "absent")


main(sys.argv[1], sys.argv[2:])
