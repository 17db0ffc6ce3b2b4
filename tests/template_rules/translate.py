"""What CloudFormation makes of a SAM template, by SAM's own code; run by the venv that has it, as a filter of JSON."""

import json
import sys

import boto3
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator

BUILT = "s3://code/built"
"""Where code would lie after `sam deploy`: nothing is built here."""


def main() -> None:
    """Read a template with local code, write it translated, its conditions and references as they were."""
    template = json.load(sys.stdin)
    for resource in template["Resources"].values():
        for place in ("CodeUri", "ContentUri"):
            if place in resource.get("Properties", {}):
                resource["Properties"][place] = BUILT
    session = boto3.Session(region_name="eu-central-1")
    json.dump(Translator({}, Parser(), boto_session=session).translate(template, {}), sys.stdout)


if __name__ == "__main__":
    main()
