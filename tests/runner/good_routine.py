"""A routine with every kind of step, in which faults are made by hand and by mutation."""

GOOD = """\
version: "1"
name: good
tools:
  - name: fetch
    effect: read
    args_schema: {type: object}
input_schema:
  type: object
  properties: {url: {type: string}}
output_schema: {type: array}
steps:
  - id: first
    type: tool.call
    tool: fetch
    args:
      url: "{{ url }}"
      deep: [1, {er: "{{ url }}"}]
    retry: {attempts: 2}
    save_as: raw
  - id: second
    type: udf.call
    function: parse
    for_each: "{{ raw }}"
    as: line
    args: {line: "{{ line }}"}
    checks:
      post:
        - len(result) > 0
    save_as: rows
  - id: third
    type: assert
    check: rows
    message: "none in {{ url }}"
  - id: fourth
    type: prompt.user
    prompt:
      message: "Send {{ rows | length }}?"
      fields:
        - {name: to, type: select, options: [a, b]}
    save_as: answer
  - id: fifth
    type: return
    when: answer.to == "a"
    value: "{{ rows }}"
  - id: sixth
    type: return
"""
