"""Writes goldens.json: what jinja2, set up as chat templates are run, makes of templates and inputs.

    python3 tests/data/templates/make_goldens.py > tests/data/templates/goldens.json

Whole templates lie beside this script as *.jinja; SNIPPETS are single constructs. A case whose
rendering fails has "error": true instead of "output".
"""

import argparse
import datetime
import itertools
import json
import pathlib
import sys
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = 1_750_000_000  # a fixed clock

SYSTEM = {"role": "system", "content": " Be brief. "}
HI = {"role": "user", "content": "  Hi <|im_end|> there\n"}
ANSWER = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello — wörld ✓\n"}
MORE = {"role": "user", "content": "And 'quotes' \"too\" & <tags>?"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "type": "function",
            "function": {"name": "f", "arguments": {"x": 1, "y": [1.5, None, True], "z": "é\n"}},
        }
    ],
}
RESULT = {"role": "tool", "content": '{"ok": true}'}
PARTS = {
    "role": "user",
    "content": [{"type": "text", "text": " a "}, {"type": "image"}, {"type": "text", "text": "b"}],
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "description": "does <f>",
            "parameters": {"type": "object", "properties": {}, "required": []},
        },
    }
]

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "hi": [HI],
    "system": [SYSTEM, HI],
    "turns": [SYSTEM, HI, ANSWER, MORE],
    "bare_turns": [HI, ANSWER, MORE],
    "tool": [HI, CALL, RESULT],
    "tool_then_answer": [SYSTEM, HI, CALL, RESULT, RESULT, ANSWER, MORE],
    "parts": [PARTS],
    "wrong_order": [ANSWER, HI],
    "ends_with_answer": [HI, ANSWER],
}

SNIPPETS: list[str] = [
    "{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 1.5 * 2 }} {{ 10 / 4 }}",
    "{{ -2 ** 2 }} {{ -3 | abs }} {{ 2 - -1 }} {{ 1e3 }} {{ 1e20 }} {{ 0.1 + 0.2 }} {{ 1_000 }}",
    "{{ 'a' ~ 1 ~ none ~ true }} {{ 'ab' * 3 }} {{ [1] * 2 }} {{ [1, 2] + [3] }}",
    "{{ 'x' if 1 > 2 else 'y' }} {{ 'x' if false }}|{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }}",
    "{{ not true or true }} {{ not (true or true) }} {{ 0 or 'f' }} {{ 'a' and 'b' }} {{ '' or none }}",
    "{{ 1 in [1, 2] }} {{ 'b' not in 'abc' }} {{ 'k' in {'k': 1} }} {{ 1 == 1.0 }} {{ true == 1 }} {{ [1] == [1] }} {{ (1,) == [1] }}",
    "{{ [1, 'a', none, true, 1.5, {'k': 'v'}, (1,), (1, 2)] }} {{ ['it\\'s', \"q\\\"\", 'both\\'\"'] }} {{ {} }} {{ [] }}",
    "{{ 'hello'[1] }} {{ 'hello'[-1] }} {{ 'hello'[1:3] }} {{ 'hello'[::-1] }} {{ 'hello'[-3:] }} {{ 'hello'[:10] }} {{ 'hello'[4:1:-2] }} {{ 'héllo'[1] }}",
    "{{ [1,2,3,4][1:] }} {{ [1,2,3,4][::-1] }} {{ [1,2,3,4][-2:] }} {{ [1,2,3,4][::2] }} {{ [1,2,3][5:] }} {{ [1,2,3][-100:100] }} {{ [1,2,3][-1:-100:-1] }}",
    "{{ ' a b '|trim }}|{{ ' a b '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxaxx'.lstrip('x') }}|{{ 'xxaxx'.rstrip('x') }}|{{ '\\u00a0a\\u2003'.strip() }}|",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b c '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b  c '.split(none, 1) }} {{ ''.split(',') }} {{ ''.split() }}",
    "{{ 'Ab c'.upper() }} {{ 'Ab C'|lower }} {{ 'ab cd-ef'.title() }} {{ 'aB'|capitalize }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'aXa'|replace('X', '') }}",
    "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('ab') }} {{ 'abc'|length }} {{ 'né'|length }} {{ [1,2]|count }} {{ {'a':1}|length }}",
    "{{ [1,2,3]|first }} {{ [1,2,3]|last }} {{ 'abc'|first }} {{ [1,2]|join('-') }} {{ ['a','b']|join }} {{ 'abc'|list }} {{ 'abc'|reverse }} {{ [1,2]|reverse|list }}",
    "{{ '12'|int + 1 }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ 3.9|int }} {{ '1.5'|float }} {{ 5|string + '!' }} {{ ' 4 '|int }}",
    "{{ x|default('d') }} {{ none|default('d') }} {{ none|default('d', true) }} {{ ''|default('d', boolean=true) }} {{ 0|d(1) }}",
    "{{ {'a': 1, 'b': [1, 2.0, none, 'é<>&\\'\"\\n\\t\\u0001']}|tojson }} {{ []|tojson }} {{ {}|tojson }} {{ true|tojson }} {{ '</x>'|tojson }}",
    "{{ {'a': {'b': [1, {'c': []}]}, 'd': {}}|tojson(indent=2) }}",
    "{{ x is defined }} {{ 1 is number }} {{ true is number }} {{ 'a' is string }} {{ {} is mapping }} {{ [] is iterable }} {{ 'a' is iterable }} {{ none is none }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 1.0 is float }} {{ 1 is integer }} {{ true is boolean }} {{ {} is sequence }}",
    "{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 1 is equalto 1 }} {{ 1 is in [1] }} {{ 1 is not none }} {{ not x is defined }} {{ 2 is eq(2) }} {{ x is undefined and true }}",
    "{% for i in range(3) %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %} {% for i in [] %}a{% else %}empty{% endfor %} {{ range(5, 0, -2)|list }}",
    "{% for i in range(10) if i % 2 %}{{ i }}:{{ loop.index0 }}:{{ loop.revindex }} {% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}{% for a, b in [(1, 2), [3, 4]] %}{{ a + b }}{% endfor %}",
    "{% for x in ['a', 'b', 'c'] %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 3 %}{% endif %}{{ x }}",
    "{% set ns = namespace(a=1) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }} {{ ns.b is defined }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set t %}block {{ a }}{% endset %}[{{ t }}] {% set (c, d) = (3, 4) %}{{ c }}{{ d }}",
    "{% macro m(a, b='x') %}<{{ a }}{{ b }}>{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}{{ m('q')|upper }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "a\n  {% if true %}\nb\n  {% endif %}\nc\n",
    "a  {%- if true -%}  b  {%- endif -%}  c",
    "  {%+ if true %}x{% endif %}\n  {# note #}\n  y {# n #} z\n{#- trim -#}\n w",
    "{{ '{{' }} {{ '%}' }} {% raw %}{{ x }} {% if %}{% endraw %} {{ {'a': {'b': 1}}['a']['b'] }}",
    "a {{- 1 -}} b {{ 2 }}\n{{ 3 }}\n\n{% set q = 1 %}\n\n{{ q }}\n\n",
    "{% if false %}a{% elif true %}b{% else %}c{% endif %}{% if 0 %}a{% else %}d{% endif %}",
    "{{ messages|map(attribute='role')|join(',') }} {{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ (messages|rejectattr('role', 'equalto', 'user')|list)|length }}",
    "{{ [0, 1, '', 'a']|select|list }} {{ [1,2,3]|reject('odd')|list }} {{ ['a','b']|map('upper')|list }}",
    "{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb'|indent(2, true) }}|{{ {'b': 1, 'a': 2}|dictsort }} {{ {'b': 1}|items|list }}",
    "{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 2) }} {{ {'a': 1}.keys()|list }} {{ {'a': 1}.values()|list }} {{ {'a': 1}.b }}|{{ {'a': 1}.a }}",
    "{{ 'con' 'cat' }} {{ 'tab\\tnl\\\\ \\x41\\u00e9 \\q' }} {{ true }} {{ True }} {{ none }} {{ None }}",
    "{{ strftime_now('%Y-%m-%d %H') }} {{ (1, 2)|length }} {{ ()|length }} {{ (1)|string }}",
    "{% generation %}x{{ 1 }}{% endgeneration %}",
    "{{ messages[0].content.split('<')[0] ~ '|' ~ messages[0]['content'][2:4] }}",
    "{{ x.y }}",
    "{{ x + 1 }}",
    "{{ 'a' + 1 }}",
    "{{ 1 / 0 }}",
    "{{ x() }}",
    "{{ raise_exception('no') }}",
    "{{ 'a' < 1 }}",
    "{{ [1].append(2) }}",
    "{% if %}",
    "{{ 1",
    "{% for x in %}{% endfor %}",
    "{{ 1|nosuch }}",
    "{% nosuch %}",
    "{% if true %}",
    "{% endif %}",
]


class Generation(jinja2.ext.Extension):
    """The tag that marks an assistant's text; it renders its body."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def environment() -> jinja2.Environment:
    """As the common libraries set one up for chat templates."""
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def raise_exception(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    def strftime_now(form: str) -> str:
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def case(
    name: str, source: str, messages: list[dict[str, Any]], generate: bool, extra: dict[str, Any]
) -> dict[str, Any]:
    """One input and what comes of it."""
    made: dict[str, Any] = {
        "name": name,
        "template": source,
        "messages": messages,
        "add_generation_prompt": generate,
        "extra": extra,
    }
    try:
        made["output"] = (
            environment()
            .from_string(source)
            .render(
                messages=messages,
                add_generation_prompt=generate,
                bos_token="<s>",
                eos_token="</s>",
                **extra,
            )
        )
    except Exception:  # whatever jinja2 and Python raise is a refusal here
        made["error"] = True
    return made


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    here = pathlib.Path(__file__).parent
    templates = {path.stem: path.read_text() for path in sorted(here.glob("*.jinja"))}
    cases = []
    extras: list[dict[str, Any]] = [{}, {"tools": TOOLS, "enable_thinking": False}]
    for (name, source), (chat, messages), generate, extra in itertools.product(
        templates.items(), CONVERSATIONS.items(), (True, False), extras
    ):
        if extra and not generate:
            continue
        label = f"{name}/{chat}/{'generate' if generate else 'plain'}{'/tools' if extra else ''}"
        made = case(label, source, messages, generate, extra)
        made["template"] = f"{name}.jinja"
        cases.append(made)
    for number, source in enumerate(SNIPPETS):
        cases.append(case(f"snippet/{number}", source, [HI, ANSWER], True, {}))
    out = {"now": NOW, "cases": cases}
    json.dump(out, sys.stdout, ensure_ascii=False, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
