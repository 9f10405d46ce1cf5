"""What secrets look like, as data: `patterns` makes regular expressions of it.

Each entry has the source of what it says, and examples that the tests try: in an example the
secret stands between « and », {20} is 20 random letters and digits, {hex32} and {upper16} are
others. Regular expressions match ASCII only, and `.` any character.

An anchor is a short text in lower case that stands in every match, in the text itself and in its
JSON; a text without any anchor is clean without a look at the expressions. `needs` are further
texts that stand in every match: a text that lacks one is not searched.

This is Python and not a data file, since every command that stores something needs it at once.
"""

from typing import Any

KEY_OF = (
    "api", "auth", "private", "access", "encryption", "account", "subscription", "signing",
    "master", "shared", "service", "secret",
)  # fmt: skip
"""The last word of a secret's name, and what may stand before it: "db_password", "X-Api-Key"."""
HARMLESS_TOKENS = (
    "next", "page", "continuation", "sync", "cursor", "pagination", "bos", "eos", "pad", "unk",
    "sep", "cls", "mask", "stop", "start", "end", "special", "max", "min", "num", "first", "last",
    "unexpected", "invalid", "expected",
)  # fmt: skip
"""Names that end in "token" and are none: of language models, parsers and lists with pages."""
PLACEHOLDERS = (
    "password", "passwd", "pass", "pwd", "secret", "token", "key", "string", "string?", "binary?",
    "str", "bytes", "text", "none", "null", "undefined", "true", "false", "required", "optional",
)  # fmt: skip
"""What stands in the place of a secret in documents and types."""

KEYS: tuple[dict[str, Any], ...] = (
    {
        "name": "anthropic-key",
        "begins": ["sk-ant-"],
        "source": "gitleaks: anthropic-api-key",
        "examples": ["sk-ant-api03-{93}AA"],
    },
    {
        "name": "github-token",
        "begins": ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
        "tail": r"\w{22,}",
        "source": "gitleaks: github-pat, github-fine-grained-pat",
        "examples": ["ghp_{36}", "github_pat_{22}_{59}"],
    },
    {
        "name": "gitlab-token",
        "begins": [
            "glpat-",
            "glrt-",
            "glptt-",
            "gldt-",
            "glcbt-",
            "glft-",
            "glimt-",
            "glsoat-",
            "glagent-",
            "gloas-",
        ],
        "source": "gitleaks: gitlab-pat and the others of GitLab",
        "examples": ["glpat-{20}", "glcbt-64_{20}"],
    },
    {
        "name": "gitlab-token",
        "begins": ["GR1348941"],
        "source": "gitleaks: gitlab-rrt",
        "examples": ["GR1348941{20}"],
    },
    {
        "name": "huggingface-token",
        "begins": ["hf_", "api_org_"],
        "tail": "[A-Za-z0-9]{30,}",
        "source": "gitleaks: huggingface-access-token",
        "examples": ["hf_{34}"],
    },
    {
        "name": "npm-token",
        "begins": ["npm_"],
        "tail": "[A-Za-z0-9]{36}",
        "source": "gitleaks: npm-access-token",
        "examples": ["npm_{36}"],
    },
    {
        "name": "pypi-token",
        "begins": ["pypi-"],
        "tail": r"[\w-]{50,}",
        "source": "gitleaks: pypi-upload-token",
        "examples": ["pypi-AgEIcHlwaS5vcmc{60}"],
    },
    {
        "name": "rubygems-key",
        "begins": ["rubygems_"],
        "tail": "[0-9a-f]{40,}",
        "source": "gitleaks: rubygems-api-token",
        "examples": ["rubygems_{hex48}"],
    },
    {
        "name": "groq-key",
        "begins": ["gsk_"],
        "tail": "[A-Za-z0-9]{32,}",
        "source": "trufflehog: groq",
        "examples": ["gsk_{52}"],
    },
    {
        "name": "xai-key",
        "begins": ["xai-"],
        "tail": "[A-Za-z0-9]{32,}",
        "source": "trufflehog: xai",
        "examples": ["xai-{80}"],
    },
    {
        "name": "perplexity-key",
        "begins": ["pplx-"],
        "tail": "[A-Za-z0-9]{32,}",
        "source": "gitleaks: perplexity-api-key",
        "examples": ["pplx-{48}"],
    },
    {
        "name": "replicate-token",
        "begins": ["r8_"],
        "tail": "[A-Za-z0-9]{32,}",
        "source": "trufflehog: replicate",
        "examples": ["r8_{37}"],
    },
    {
        "name": "langsmith-key",
        "begins": ["lsv2_"],
        "source": "trufflehog: langsmith",
        "examples": ["lsv2_pt_{hex32}_{hex10}"],
    },
    {
        "name": "tavily-key",
        "begins": ["tvly-"],
        "source": "docs.tavily.com: API key",
        "examples": ["tvly-dev-{32}"],
    },
    {
        "name": "pinecone-key",
        "begins": ["pcsk_"],
        "source": "trufflehog: pinecone",
        "examples": ["pcsk_{64}"],
    },
    {
        "name": "nvidia-key",
        "begins": ["nvapi-"],
        "source": "trufflehog: nvapi",
        "examples": ["nvapi-{64}"],
    },
    {
        "name": "firecrawl-key",
        "begins": ["fc-"],
        "tail": "[0-9a-f]{32}",
        "source": "docs.firecrawl.dev: API keys",
        "examples": ["fc-{hex32}"],
    },
    {
        "name": "e2b-key",
        "begins": ["e2b_"],
        "tail": "[0-9a-f]{32,}",
        "source": "e2b.dev/docs: API key",
        "examples": ["e2b_{hex40}"],
    },
    {
        "name": "notion-token",
        "begins": ["ntn_", "secret_"],
        "tail": "[A-Za-z0-9]{40,}",
        "source": "gitleaks: notion-api-token",
        "examples": ["ntn_{46}"],
    },
    {
        "name": "linear-key",
        "begins": ["lin_api_"],
        "tail": "[A-Za-z0-9]{32,}",
        "source": "gitleaks: linear-api-key",
        "examples": ["lin_api_{40}"],
    },
    {
        "name": "supabase-key",
        "begins": ["sbp_", "sb_secret_"],
        "source": "trufflehog: supabasetoken",
        "examples": ["sbp_{hex40}"],
    },
    {
        "name": "vault-token",
        "begins": ["hvs.", "hvb."],
        "tail": r"[\w-]{20,}",
        "source": "gitleaks: vault-service-token, vault-batch-token",
        "examples": ["hvs.{90}"],
    },
    {
        "name": "docker-token",
        "begins": ["dckr_pat_"],
        "source": "trufflehog: dockerhub",
        "examples": ["dckr_pat_{27}"],
    },
    {
        "name": "atlassian-token",
        "begins": ["ATATT3"],
        "tail": r"[\w=-]{20,}",
        "source": "gitleaks: atlassian-api-token",
        "examples": ["ATATT3xFfGF0{160}"],
    },
    {
        "name": "grafana-token",
        "begins": ["glsa_", "glc_"],
        "source": "gitleaks: grafana-service-account-token",
        "examples": ["glsa_{32}_{hex8}"],
    },
    {
        "name": "shopify-token",
        "begins": ["shpat_", "shpca_", "shppa_", "shpss_"],
        "tail": "[0-9a-fA-F]{32}",
        "source": "gitleaks: shopify-access-token",
        "examples": ["shpat_{hex32}"],
    },
    {
        "name": "figma-token",
        "begins": ["figd_"],
        "source": "trufflehog: figmapersonalaccesstoken",
        "examples": ["figd_{40}"],
    },
    {
        "name": "databricks-token",
        "begins": ["dapi"],
        "tail": "[0-9a-f]{32}",
        "source": "gitleaks: databricks-api-token",
        "examples": ["dapi{hex32}"],
    },
    {
        "name": "digitalocean-token",
        "begins": ["dop_v1_", "doo_v1_", "dor_v1_"],
        "tail": "[0-9a-f]{64}",
        "source": "gitleaks: digitalocean-pat",
        "examples": ["dop_v1_{hex64}"],
    },
    {
        "name": "alibaba-key-id",
        "begins": ["LTAI"],
        "tail": "[A-Za-z0-9]{20}(?![A-Za-z0-9])",
        "source": "gitleaks: alibaba-access-key-id",
        "examples": ["LTAI{20}"],
    },
    {
        "name": "artifactory-key",
        "begins": ["AKCp"],
        "tail": "[A-Za-z0-9]{69}",
        "source": "gitleaks: artifactory-api-key",
        "examples": ["AKCp{69}"],
    },
    {
        "name": "bedrock-key",
        "begins": ["ABSK"],
        "tail": "[A-Za-z0-9+/]{100,}={0,2}",
        "source": "gitleaks: aws-amazon-bedrock-api-key-long-lived",
        "examples": ["ABSK{120}"],
    },
    {
        "name": "clojars-token",
        "begins": ["CLOJARS_"],
        "tail": "[A-Za-z0-9]{60}",
        "source": "gitleaks: clojars-api-token",
        "examples": ["CLOJARS_{60}"],
    },
    {
        "name": "doppler-token",
        "begins": ["dp.pt."],
        "tail": "[A-Za-z0-9]{40,}",
        "source": "gitleaks: doppler-api-token",
        "examples": ["dp.pt.{43}"],
    },
    {
        "name": "duffel-token",
        "begins": ["duffel_test_", "duffel_live_"],
        "tail": r"[\w=-]{43}",
        "source": "gitleaks: duffel-api-token",
        "examples": ["duffel_live_{43}"],
    },
    {
        "name": "dynatrace-token",
        "begins": ["dt0c01."],
        "tail": r"[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}",
        "source": "gitleaks: dynatrace-api-token",
        "examples": ["dt0c01.{24}.{64}"],
    },
    {
        "name": "easypost-key",
        "begins": ["EZAK", "EZTK"],
        "tail": "[A-Za-z0-9]{54}",
        "source": "gitleaks: easypost-api-token",
        "examples": ["EZAK{54}"],
    },
    {
        "name": "flyio-token",
        "begins": ["fo1_", "fm2_"],
        "tail": r"[\w+/-]{40,}",
        "source": "gitleaks: flyio-access-token",
        "examples": ["fo1_{43}"],
    },
    {
        "name": "heroku-key",
        "begins": ["HRKU-AA"],
        "tail": r"[\w-]{50,}",
        "source": "gitleaks: heroku-api-key-v2",
        "examples": ["HRKU-AA{58}"],
    },
    {
        "name": "infracost-token",
        "begins": ["ico-"],
        "tail": "[A-Za-z0-9]{32}",
        "source": "gitleaks: infracost-api-token",
        "examples": ["ico-{32}"],
    },
    {
        "name": "newrelic-key",
        "begins": ["NRAK-", "NRII-", "NRJS-"],
        "source": "gitleaks: new-relic-user-api-key",
        "examples": ["NRAK-{27}"],
    },
    {
        "name": "openshift-token",
        "begins": ["sha256~"],
        "tail": r"[\w-]{43}",
        "source": "gitleaks: openshift-user-token",
        "examples": ["sha256~{43}"],
    },
    {
        "name": "planetscale-token",
        "begins": ["pscale_tkn_", "pscale_pw_", "pscale_oauth_"],
        "tail": r"[\w.=-]{32,}",
        "source": "gitleaks: planetscale-api-token",
        "examples": ["pscale_tkn_{43}"],
    },
    {
        "name": "postman-key",
        "begins": ["PMAK-"],
        "tail": "[0-9a-f]{24}-[0-9a-f]{34}",
        "source": "gitleaks: postman-api-token",
        "examples": ["PMAK-{hex24}-{hex34}"],
    },
    {
        "name": "prefect-token",
        "begins": ["pnu_"],
        "tail": "[A-Za-z0-9]{36}",
        "source": "gitleaks: prefect-api-token",
        "examples": ["pnu_{36}"],
    },
    {
        "name": "pulumi-token",
        "begins": ["pul-"],
        "tail": "[0-9a-f]{40}",
        "source": "gitleaks: pulumi-api-token",
        "examples": ["pul-{hex40}"],
    },
    {
        "name": "sentry-token",
        "begins": ["sntrys_", "sntryu_"],
        "tail": r"[\w+/=-]{40,}",
        "source": "gitleaks: sentry-org-token, sentry-user-token",
        "examples": ["sntryu_{hex64}"],
    },
    {
        "name": "square-token",
        "begins": ["sq0atp-", "sq0csp-", "EAAA"],
        "tail": r"[\w-]{22,60}(?![\w-])",
        "source": "gitleaks: square-access-token",
        "examples": ["sq0atp-{22}", "EAAA{60}"],
    },
)
"""Keys that are known by how they begin."""

SHAPES: tuple[dict[str, Any], ...] = (
    {
        "name": "openai-key",
        "anchors": ["sk-"],
        "pattern": r"{edge}sk-(?=[\w-]{0,200}\d)(?=[\w-]{0,200}[A-Z]|[\w-]{40})[\w-]{20,}",
        "source": "gitleaks: openai-api-key",
        "examples": ["sk-proj-{74}T3BlbkFJ{74}"],
    },
    {
        "name": "aws-key-id",
        "anchors": ["akia", "asia", "abia", "acca"],
        "pattern": "{edge}(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
        "source": "gitleaks: aws-access-token",
        "examples": ["AKIA{upper16}"],
    },
    {
        "name": "google-key",
        "anchors": ["aiza"],
        "pattern": r"{edge}AIza[\w-]{35}",
        "source": "gitleaks: gcp-api-key",
        "examples": ["AIza{35}"],
    },
    {
        "name": "google-token",
        "anchors": ["ya29.", "gocspx-"],
        "pattern": r"{edge}(?:ya29\.[\w.-]{20,}|GOCSPX-[\w-]{20,})",
        "source": "trufflehog: googleoauth2",
        "examples": ["ya29.a0{60}", "GOCSPX-{28}"],
    },
    {
        "name": "slack-token",
        "anchors": ["xox", "xapp-"],
        "pattern": r"{edge}(?:xox[abceoprs]|xapp)-(?=[\w-]{0,80}\d)[\w-]{10,}",
        "source": "gitleaks: slack-bot-token",
        "examples": ["xoxb-123456789012-123456789012-{24}"],
    },
    {
        "name": "webhook",
        "anchors": ["hooks.slack.com", "/api/webhooks/"],
        "pattern": (
            r"(?:hooks\.slack\.com/(?:services|workflows)|/api/webhooks)/(?P<secret>["
            r"\w/+-]{20,})"
        ),
        "source": "gitleaks: slack-webhook-url",
        "examples": ["https://hooks.slack.com/services/«T{upper8}/B{upper8}/{24}»"],
    },
    {
        "name": "stripe-key",
        "anchors": ["_live_", "_test_", "_prod_", "whsec_"],
        "pattern": (
            "{edge}(?:(?:sk|rk)_(?:live|test|prod)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{20,})"
        ),
        "source": "gitleaks: stripe-access-token",
        "examples": ["sk_live_{24}", "whsec_{32}"],
    },
    {
        "name": "sendgrid-key",
        "anchors": ["sg."],
        "pattern": r"{edge}SG\.[\w-]{16,}\.[\w-]{16,}",
        "source": "gitleaks: sendgrid-api-token",
        "examples": ["SG.{22}.{43}"],
    },
    {
        "name": "azure-secret",
        "anchors": ["q~"],
        "pattern": r"(?<![\w~.])[\w~.]{3}\dQ~[\w~.-]{31,34}",
        "source": "gitleaks: azure-ad-client-secret",
        "examples": ["Abc8Q~{34}"],
    },
    {
        "name": "terraform-token",
        "anchors": [".atlasv1."],
        "pattern": r"{edge}[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,70}",
        "source": "gitleaks: hashicorp-tf-api-token",
        "examples": ["{14}.atlasv1.{64}"],
    },
    {
        "name": "telegram-token",
        "anchors": [":aa"],
        "pattern": r"(?<!\d)\d{8,12}:AA[\w-]{32,}",
        "source": "gitleaks: telegram-bot-api-token",
        "examples": ["123456789:AA{33}"],
    },
    {
        "name": "age-key",
        "anchors": ["age-secret-key-1"],
        "pattern": "AGE-SECRET-KEY-1[A-Z0-9]{20,}",
        "source": "gitleaks: age-secret-key",
        "examples": ["AGE-SECRET-KEY-1{upper58}"],
    },
    {
        "name": "jwt",
        "anchors": ["eyj"],
        "pattern": r"(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*",
        "source": "gitleaks: jwt",
        "examples": ["eyJ{30}.eyJ{60}.{43}"],
    },
    {
        "name": "private-key",
        "anchors": ["ls0tls1crudjti"],
        "pattern": "LS0tLS1CRUdJTi[A-Za-z0-9+/=]{20,}",
        "source": "a private key in Base64 (RFC 7468)",
        "examples": ["LS0tLS1CRUdJTi{80}"],
    },
    # Only what a key can hold: code that merely names the first line is left alone.
    {
        "name": "private-key",
        "anchors": ["private key"],
        "pattern": (
            "-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----END)[A-Z"
            r"a-z0-9+/=\s:,\\-]){16,}+(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)"
            "?-----)?"
        ),
        "source": "RFC 7468; gitleaks: private-key",
        "examples": [
            "-----BEGIN RSA PRIVATE KEY-----\n{64}\n-----END RSA PRIVATE KEY-----",
        ],
    },
)
"""Keys that are known by their whole shape."""

PLACES: tuple[dict[str, Any], ...] = (
    {
        "name": "assigned",
        "begins_with_name": True,
        "pattern": (
            r"""{edge}{name}{between}(?P<quote>["'])(?P<secret>(?:\\.|(?!(?P=quote))[^"""
            r"\\\n])+)"
        ),
        "source": "code, JSON, YAML, TOML",
        "examples": [
            'password = "«{20}»"',
            "{'api_key': '«{20}»', 'debug': True}",
            'sent {"client_secret": "«{20}»"}',
            'declare -x NPM_TOKEN="«{20}»"',
            '$env:GITHUB_TOKEN = "«{20}»"',
            'os.environ["API_KEY"] = "«{20}»"',
            "'password' => '«{20}»'",
            'password: str = "«{20}»"',
        ],
    },
    {
        "name": "assigned",
        "begins_with_name": True,
        "pattern": (
            r"""{edge}{name}{between}(?P<quote>\\{1,3}["'])(?P<secret>(?:(?!(?P=quote))["""
            r"^\n])+)"
        ),
        "source": "JSON inside a text of JSON",
        "examples": [r'{"body": "{\"client_secret\": \"«{20}»\"}"}'],
    },
    # A line of an environment, with all signs up to its end.
    {
        "name": "setting",
        "needs": ["="],
        "pattern": (
            r"(?m)^[ \t>+-]{0,8}(?:(?:export|set|ENV)[ \t]{1,4})?(?-i:(?=[A-Z0-9_]{1,6"
            r"""0}=)){name}=(?P<secret>[^\s"'$\[][^\s]{5,})$"""
        ),
        "source": "env, export, .env files, cmd",
        "examples": [
            "HOME=/root\nDATABASE_PASSWORD=«{20}»\nSHELL=/bin/sh",
            "export STRIPE_SECRET=«{5}&;({12}»",
            "set AZURE_CLIENT_SECRET=«{20}»",
        ],
    },
    {
        "name": "unquoted",
        "begins_with_name": True,
        "pattern": r"""{edge}{name}[ \t]{0,8}[:=][ \t]{0,8}`?(?P<secret>[^\s"'`\\]{6,}+)""",
        "source": (
            "YAML, INI, Markdown, templates of JavaScript, properties, headers, query"
            " strings, connection strings, logs"
        ),
        "examples": [
            "token=«{20}»",
            "secret: «{20}»",
            "X-API-Key: «{20}»",
            "spring.datasource.password=«{20}»",
            "GET https://example.com/items?api_key=«{20}»&page=2",
            "//registry.npmjs.org/:_authToken=«{20}»",
            "aws_secret_access_key = «{20}/{19}»",
            "Server=db;User Id=sa;Password=«{20}»;Encrypt=yes",
            "docker run -e POSTGRES_PASSWORD=«{20}» -p 5432:5432 postgres",
            "const authToken = `«{20}»`;",
            "secret_key_base: «{hex64}»",
        ],
    },
    {
        "name": "setting",
        "needs": ["env"],
        "pattern": (
            r"(?m)^[ \t]{0,8}ENV[ \t]{1,4}(?-i:(?=[A-Z0-9_]{1,60}[ \t])){name}[ \t]{1,"
            r"""4}(?P<secret>[^\s"'$\[][^\s]{5,})$"""
        ),
        "source": "Dockerfile, the older form of ENV",
        "examples": ["FROM scratch\nENV SECRET_TOKEN «{20}»\nUSER ana"],
    },
    {
        "name": "option",
        "needs": ["--"],
        "pattern": (
            r"""(?<!\S)--{name}(?:[ =]\s{0,4})(?P<secret>[^\s"'`;&<>()\[\]{}|\\-][^\s"'`"""
            r"\\]{5,})"
        ),
        "source": "command lines",
        "examples": [
            "mysql --user root --password «{20}» shop",
            "tool login --api-key=«{20}» --verbose",
        ],
    },
    {
        "name": "login-option",
        "case": True,
        "anchors": [
            "login",
            "sshpass",
            "mongo",
            "ldap",
            "sqlcmd",
            "redis-cli",
            "zip -",
            "openssl",
            "smbclient",
        ],
        "pattern": (
            r"\b(?:(?:docker|podman|nerdctl|helm|az|oc|cf|skopeo|crane|buildah|registr"
            r"y)[ \t]+login\b[^\n|;&]{0,200}?[ \t]-p|sshpass[ \t]+-p|mongo\w{0,10}\b[^"
            r"\n|;&]{0,200}?[ \t]-p|ldap\w{1,10}\b[^\n|;&]{0,200}?[ \t]-w|(?:sqlcmd|bc"
            r"p)\b[^\n|;&]{0,200}?[ \t]-P|(?:un)?zip\b[^\n|;&]{0,200}?[ \t]-P|redis-cl"
            r"i\b[^\n|;&]{0,200}?[ \t]-a|openssl\b[^\n|;&]{0,200}?[ \t](?:-pass\w{0,3}"
            r"[ \t]+|-k[ \t]+)(?:pass:)?|smbclient\b[^\n|;&]{0,200}?[ \t]-U[ \t]*[^\s%"
            r"""]{1,60}%)[ \t=]{0,4}["']?(?P<secret>(?!(?:env|file|fd|stdin)[:\b])[^\s"'"""
            r"""`$-][^\s"'`]{3,})"""
        ),
        "source": "the manual pages of these programs",
        "examples": [
            "docker login -u ana -p «{20}» registry.example.com",
            "sshpass -p «{20}» ssh ana@host.example.com",
            "redis-cli -h cache.example.com -a «{20}» ping",
            "ldapsearch -x -D cn=admin -w «{20}» -b dc=example",
            "openssl enc -aes-256-cbc -pass pass:«{20}» -in a -out b",
            "mongosh --host db -u ana -p «{20}»",
        ],
    },
    {
        "name": "login-option",
        "case": True,
        "anchors": ["htpasswd"],
        "pattern": (
            r"\bhtpasswd\b[^\n|;&]{0,200}?[ \t]-[a-zA-Z]*b[a-zA-Z]*[ \t]+\S{1,200}[ \t"
            r"""]+\S{1,80}[ \t]+["']?(?P<secret>[^\s"'`$]{3,})"""
        ),
        "source": "htpasswd(1)",
        "examples": [
            "htpasswd -b users.htpasswd bob «{12}»",
            "htpasswd -cbB f bob «{20}»",
        ],
    },
    {
        "name": "piped-password",
        "case": True,
        "anchors": ["sudo -s", "--password-stdin", "passwd --stdin", "--stdin"],
        "pattern": (
            r"""\b(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+)?["']?(?P<secret>[^\s"'`$|-][^\s"""
            r""""'`|]{2,})["']?[ \t]*\|[ \t]*(?:sudo[ \t]+-S|[^\n|;&]{0,200}?(?:--passwo"""
            r"rd-stdin|passwd[ \t]+--stdin|--stdin))"
        ),
        "source": "sudo(8), docker-login(1), passwd(1)",
        "examples": [
            "echo «{12}» | sudo -S apt update",
            "echo '«{20}»' | docker login -u bob --password-stdin",
        ],
    },
    {
        "name": "auth",
        "anchors": ['auth"', "auth'", "auth:", "auth=", "auth\\"],
        "pattern": (
            '(?<![A-Za-z0-9_])(?P<name>_?auth)\\\\{0,3}["\']?\\s{0,4}[:=]\\s{0,4}\\\\{0,3}["'
            "']?(?P<secret>[A-Za-z0-9+/=_.-]{12,})(?![A-Za-z0-9+/=_.(-])"
        ),
        "source": "docker's config.json, npmrc, Redis",
        "examples": [
            '{"auths": {"ghcr.io": {"auth": "«{28}»"}}}',
            "redis:\n  auth: «{20}»",
        ],
    },
    # No blank between the option and the password.
    {
        "name": "login-option",
        "case": True,
        "anchors": ["mysql", "mariadb", "7z"],
        "pattern": (
            r"""\b(?:mysql\w{0,8}|mariadb(?:-\w{1,8})?|7za?)\b[^\n|;&]{0,200}?[ \t]-p["'"""
            r"""]?(?P<secret>[^\s"'`$-][^\s"'`]{3,})"""
        ),
        "source": "the manual pages of mysql, mariadb and 7z",
        "examples": ["mysql -u root -p«{20}» shop", "7z x -p«{20}» archive.7z"],
    },
    {
        "name": "set-command",
        "needs": ["set"],
        "pattern": (
            r"\b(?:setx|(?:config|configure|secret|secrets)[ :]set|config-set)[ \t]{1,"
            r"""4}(?:\S{0,80}[:/._-])?{name}[ \t]{1,4}(?P<secret>[^\s"'`$-][^\s"'`;&|]{5"""
            ",})"
        ),
        "source": "aws configure set, npm config set, setx, gh secret set",
        "examples": [
            "aws configure set aws_secret_access_key «{40}»",
            "npm config set //registry.npmjs.org/:_authToken «{36}»",
            "setx API_TOKEN «{20}»",
        ],
    },
    {
        "name": "curl-password",
        "case": True,
        "anchors": ["curl", "http "],
        "pattern": (
            r"\b(?:curl|https?)\b[^\n]{0,400}?\s(?:-u|--user|--proxy-user|-a|--auth)[ "
            r"""=]?["']?[^\s:"']{1,80}:(?P<secret>[^\s"']{3,})"""
        ),
        "source": "gitleaks: curl-auth-user",
        "examples": ["curl -sS -u ana:«{20}» https://example.com/api"],
    },
    {
        "name": "netrc",
        "anchors": ["login"],
        "pattern": r"""\blogin\s{1,8}\S{1,80}\s{1,8}password\s{1,8}(?P<secret>[^\s"'`]{4,})""",
        "source": "netrc(5)",
        "examples": ["machine example.com login ana password «{20}»"],
    },
    {
        "name": "in-words",
        "begins_with_name": True,
        "pattern": (
            r"{edge}{name}s?(?:[ \t]{1,4}for[ \t]{1,4}\S{1,60})?[ \t]{1,4}(?:is|was|to"
            r"""|are):?[ \t]{1,4}(?:now[ \t]{1,4}|still[ \t]{1,4})?["'`]?(?P<secret>[^\s"""
            r""""'`\\]{6,}+)"""
        ),
        "source": "what people write to an assistant",
        "examples": [
            "My password is «{20}» and I can't log in",
            "the API key for staging is now «{20}».",
        ],
    },
    {
        "name": "in-words",
        "pattern": (
            r"\b(?:with|using|and|by)[ \t]{1,4}(?:the[ \t]{1,4}|this[ \t]{1,4})?{name}"
            r""":?[ \t]{1,4}["'`]?(?P<secret>[^\s"'`\\]{8,}+)"""
        ),
        "source": "what people write to an assistant",
        "examples": [
            "log in as user ana and pass «{20}»",
            "Connect with the password «{20}» please",
        ],
    },
    {
        "name": "pair",
        "needs": ["value"],
        "pattern": (
            r"""["']?\b(?:name|key)["']?\s{0,4}[:=]\s{0,4}\\{0,3}["']?{name}\\{0,3}["']?"""
            r"""\s{0,4},?\s{0,40}\\{0,3}["']?value\\{0,3}["']?\s{0,4}[:=]\s{0,4}\\{0,3}["""
            r""""']?(?P<secret>[^\s"'\\]{4,})"""
        ),
        "source": "Kubernetes, ECS, NuGet",
        "examples": [
            '- name: API_TOKEN\n  value: "«{20}»"',
            '{"name": "DB_PASSWORD", "value": "«{20}»"}',
            '<add key="ClearTextPassword" value="«{20}»" />',
        ],
    },
    {
        "name": "element",
        "needs": ["</"],
        "pattern": r"<{name}>\s{0,8}(?P<secret>[^<>\s][^<>]{0,4095})</",
        "source": "XML",
        "examples": ["<credentials><password>«{20}»</password></credentials>"],
    },
    {
        "name": "sql-password",
        "anchors": ["identified", "passw"],
        "pattern": (
            r"\b(?:identified\s{1,4}(?:with\s{1,4}\S{1,60}\s{1,4})?by|password)\s{1,4}"
            r"(?:as\s{1,4})?'(?P<secret>[^'\n]{1,200})'(?!\s{0,4}[:=\]])"
        ),
        "source": "CREATE USER and ALTER ROLE of MySQL, Oracle and PostgreSQL",
        "examples": [
            "CREATE USER ana IDENTIFIED BY '«{20}»'",
            "ALTER ROLE ana WITH PASSWORD '«{20}»'",
        ],
    },
    {
        "name": "url-password",
        "needs": ["@"],
        "anchors": ["://"],
        "pattern": (
            r"""(?<=://)[^\s/:@"'<>\[?#]{0,256}:(?!\d{1,5}[/?#])(?P<secret>[^\s"'<>?]{1,"""
            "4096})@"
        ),
        "source": "RFC 3986, user information",
        "examples": [
            "postgresql://ana:«{20}»@db.example.com:5432/shop",
            "redis://:«{20}»@localhost:6379",
        ],
    },
    {
        "name": "url-signature",
        "anchors": ["signature=", "sig=", "signature%3d"],
        "pattern": r"[?&](?:X-(?:Amz|Goog)-Signature|sig|signature)=(?P<secret>[\w%+/=.-]{16,})",
        "source": "presigned URLs of S3 and Google Cloud Storage, SAS of Azure",
        "examples": [
            "https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature=«{hex64}»",
            "https://a.blob.core.windows.net/c/b?sv=2022&sig=«{43}»",
        ],
    },
    {
        "name": "authorization",
        "anchors": ["authorization"],
        "pattern": (
            r"""\bauthorization\\{0,3}["']?\s{0,8}[:=]\s{0,8}\\{0,3}["']?(?:[A-Za-z][\w-"""
            r"""]{1,20}\s{1,8})?(?P<secret>[^\s"'\\]{6,})"""
        ),
        "source": "RFC 9110, Authorization",
        "examples": [
            "Authorization: token «{20}»",
            'curl -H "Authorization: Bearer «{20}»" https://example.com',
            "authorization: Basic «{24}»",
        ],
    },
    {
        "name": "cookie",
        "anchors": ["cookie"],
        "pattern": (
            r"""\b(?:set-)?cookie\\{0,3}["']?\s{0,8}:\s{0,8}\\{0,3}["']?(?P<secret>[^\s="""
            r""";"'\\\[]{1,80}=[^\r\n"'\\]{3,})"""
        ),
        "source": "RFC 6265",
        "examples": ["Cookie: «sessionid={20}; theme=dark»"],
    },
    {
        "name": "bearer-token",
        "anchors": ["bearer"],
        "pattern": r"\bbearer\s{1,8}(?P<secret>[\w.~+/-]{16,}={0,2})",
        "source": "RFC 6750",
        "examples": ["curl -H 'X: bearer «{32}»'"],
    },
)
"""Secrets that are known by where they stand. {name} is the name of a secret, in any case."""
