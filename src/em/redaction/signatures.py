"""What secrets look like, as data: `patterns` makes regular expressions of it.

Everything is matched by RE2, which reads a text once whatever the expression is: there are no
looks ahead or behind. In an example the secret stands between « and », {20} is 20 random letters
and digits, {hex32} and {upper16} are others. `source` says who documents the form.

This is Python and not a data file, since every command that stores something needs it at once.
"""

from typing import NamedTuple


class Signature(NamedTuple):
    """One form of secrets.

    anchors: short patterns in lower case, one of which matches wherever the signature does, in the
    text itself and in its JSON; a text without any anchor is clean.
    pattern: its group `secret` is what is removed, else the whole match is.
    form: how a value must look: see `patterns`.
    """

    name: str
    anchors: str
    pattern: str
    source: str
    examples: tuple[str, ...]
    form: str = ""


KEY_OF = (
    "api", "auth", "private", "access", "encryption", "account", "subscription", "signing",
    "master", "shared", "service", "secret",
)  # fmt: skip
"""The last word of a secret's name, and what may stand before it: "db_password", "X-Api-Key"."""
PASSWORDS = (
    "password", "passwd", "passphrase", "passcode", "passwort", "kennwort", "wachtwoord", "senha",
    "contrasena", "mot de passe", "motdepasse", "adgangskode", "passord", "losenord", "salasana",
    "haslo", "heslo", "jelszo", "parola", "lozinka", "secret",
)  # fmt: skip
"""Words for a password that are written in ASCII."""
FOREIGN = (
    "contraseña", "contrasenya", "palavra-passe", "lösenord", "hasło", "jelszó", "şifre", "пароль",
    "κωδικός", "密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "암호", "סיסמה",
    "mật khẩu", "كلمة المرور", "รหัสผ่าน", "पासवर्ड",
)  # fmt: skip
"""Words for a password with other letters. They are read as English words of the same length."""
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

EDGE = r"(?:^|[^A-Za-z0-9])"
USUAL_TAIL = r"[\w-]{16,}"
KEYS = r"""
anthropic-key | sk-ant- |  | sk-ant-api03-{93}AA | gitleaks: anthropic-api-key
github-token | ghp_ gho_ ghu_ ghs_ ghr_ | \w{22,} | ghp_{36} | gitleaks: github-pat
github-token | github_pat_ | \w{22,} | github_pat_{22}_{59} | gitleaks: github-fine-grained-pat
gitlab-token | glpat- glrt- glptt- gldt- glcbt- |  | glpat-{20} | gitleaks: gitlab-pat
gitlab-token | glft- glimt- glsoat- glagent- gloas- |  | glagent-{50} | gitleaks: gitlab
gitlab-token | GR1348941 |  | GR1348941{20} | gitleaks: gitlab-rrt
huggingface-token | hf_ api_org_ | @{30,} | hf_{34} | gitleaks: huggingface-access-token
npm-token | npm_ | @{36} | npm_{36} | gitleaks: npm-access-token
pypi-token | pypi- | [\w-]{50,} | pypi-AgEIcHlwaS5vcmc{60} | gitleaks: pypi-upload-token
rubygems-key | rubygems_ | [0-9a-f]{40,} | rubygems_{hex48} | gitleaks: rubygems-api-token
groq-key | gsk_ | @{32,} | gsk_{52} | trufflehog: groq
xai-key | xai- | @{32,} | xai-{80} | trufflehog: xai
perplexity-key | pplx- | @{32,} | pplx-{48} | gitleaks: perplexity-api-key
replicate-token | r8_ | @{32,} | r8_{37} | trufflehog: replicate
langsmith-key | lsv2_ |  | lsv2_pt_{hex32}_{hex10} | trufflehog: langsmith
tavily-key | tvly- |  | tvly-dev-{32} | docs.tavily.com: API key
pinecone-key | pcsk_ |  | pcsk_{64} | trufflehog: pinecone
nvidia-key | nvapi- |  | nvapi-{64} | trufflehog: nvapi
firecrawl-key | fc- | [0-9a-f]{32} | fc-{hex32} | docs.firecrawl.dev: API keys
e2b-key | e2b_ | [0-9a-f]{32,} | e2b_{hex40} | e2b.dev/docs: API key
notion-token | ntn_ secret_ | @{40,} | ntn_{46} | gitleaks: notion-api-token
linear-key | lin_api_ | @{32,} | lin_api_{40} | gitleaks: linear-api-key
supabase-key | sbp_ sb_secret_ |  | sbp_{hex40} | trufflehog: supabasetoken
vault-token | hvs. hvb. | [\w-]{20,} | hvs.{90} | gitleaks: vault-service-token
docker-token | dckr_pat_ |  | dckr_pat_{27} | trufflehog: dockerhub
atlassian-token | ATATT3 | [\w=-]{20,} | ATATT3xFfGF0{160} | gitleaks: atlassian-api-token
grafana-token | glsa_ glc_ |  | glsa_{32}_{hex8} | gitleaks: grafana-service-account-token
shopify-token | shpat_ shpca_ shppa_ shpss_ | [0-9a-fA-F]{32} | shpat_{hex32} | gitleaks: shopify
figma-token | figd_ |  | figd_{40} | trufflehog: figmapersonalaccesstoken
databricks-token | dapi | [0-9a-f]{32} | dapi{hex32} | gitleaks: databricks-api-token
digitalocean-token|dop_v1_ doo_v1_ dor_v1_|[0-9a-f]{64}|dop_v1_{hex64}|gitleaks: digitalocean
alibaba-key-id | LTAI | @{20}$ | LTAI{20} | gitleaks: alibaba-access-key-id
artifactory-key | AKCp | @{69} | AKCp{69} | gitleaks: artifactory-api-key
bedrock-key | ABSK | [A-Za-z0-9+/]{100,}={0,2} | ABSK{120} | gitleaks: aws
clojars-token | CLOJARS_ | @{60} | CLOJARS_{60} | gitleaks: clojars-api-token
doppler-token | dp.pt. | @{40,} | dp.pt.{43} | gitleaks: doppler-api-token
duffel-token | duffel_test_ duffel_live_ | [\w=-]{43} | duffel_live_{43} | gitleaks: duffel
dynatrace-token | dt0c01. | @{24}\.@{64} | dt0c01.{24}.{64} | gitleaks: dynatrace-api-token
easypost-key | EZAK EZTK | @{54} | EZAK{54} | gitleaks: easypost-api-token
flyio-token | fo1_ fm2_ | [\w+/-]{40,} | fo1_{43} | gitleaks: flyio-access-token
heroku-key | HRKU-AA | [\w-]{50,} | HRKU-AA{58} | gitleaks: heroku-api-key-v2
infracost-token | ico- | @{32} | ico-{32} | gitleaks: infracost-api-token
newrelic-key | NRAK- NRII- NRJS- |  | NRAK-{27} | gitleaks: new-relic-user-api-key
openshift-token | sha256~ | [\w-]{43} | sha256~{43} | gitleaks: openshift-user-token
planetscale-token|pscale_tkn_ pscale_pw_ pscale_oauth_|[\w.=-]{32,}|pscale_tkn_{43}|gitleaks
postman-key | PMAK- | [0-9a-f]{24}-[0-9a-f]{34} | PMAK-{hex24}-{hex34} | gitleaks: postman-api-token
prefect-token | pnu_ | @{36} | pnu_{36} | gitleaks: prefect-api-token
pulumi-token | pul- | [0-9a-f]{40} | pul-{hex40} | gitleaks: pulumi-api-token
sentry-token | sntrys_ sntryu_ | [\w+/=-]{40,} | sntryu_{hex64} | gitleaks: sentry-org-token
square-token | sq0atp- sq0csp- EAAA | [\w-]{22,60}$ | sq0atp-{22} EAAA{60} | gitleaks: square
langfuse-key | sk-lf- pk-lf- | [0-9a-f-]{36} | sk-lf-{hex36} | langfuse.com/docs
tailscale-key | tskey- | [\w-]{16,} | tskey-auth-k{12}CNTRL-{24} | tailscale.com/kb/1277: key
twilio-key | SK | [0-9a-f]{32}$ | SK{hex32} | gitleaks: twilio-api-key
mailgun-key | key- pubkey- | [0-9a-f]{32}$ | key-{hex32} | gitleaks: mailgun-private-api-token
"""
"""Keys that are known by how they begin: name, beginnings, tail, examples, source.

In a tail, @ is a letter or digit, and $ stands where neither may follow.
"""


def _keys() -> tuple[Signature, ...]:
    """Return the signatures of the table."""
    found = []
    for line in KEYS.strip().splitlines():
        name, begins, tail, examples, source = (part.strip() for part in line.split("|"))
        starts = begins.replace(".", r"\.").split()
        body = tail.replace("@", "[A-Za-z0-9]") or USUAL_TAIL
        end = r"(?:[^\w-]|\z)" if body.endswith("$") else ""
        pattern = f"{EDGE}(?P<secret>(?:{'|'.join(starts)}){body.removesuffix('$')}){end}"
        sign = body[: body.index("{")] if body[0] == "[" else r"\w"
        anchors = " ".join(f"{begin}{sign}{{4}}".lower() for begin in starts)
        found.append(Signature(name, anchors, pattern, source, tuple(examples.split())))
    return tuple(found)


SIGNATURES: tuple[Signature, ...] = (
    *_keys(),
    Signature(
        "openai-key",
        "sk-",
        EDGE + r"(?P<secret>sk-[\w-]{20,})",
        "gitleaks: openai-api-key",
        ("sk-proj-{74}T3BlbkFJ{74}",),
        "mixed",
    ),
    Signature(
        "aws-key-id",
        "akia[a-z0-9] asia[a-z0-9] abia[a-z0-9] acca[a-z0-9]",
        EDGE + r"(?P<secret>(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16})(?:[^A-Za-z0-9]|\z)",
        "gitleaks: aws-access-token",
        ("AKIA{upper16}",),
    ),
    Signature(
        "google-key",
        "aiza",
        EDGE + r"(?P<secret>AIza[\w-]{35})",
        "gitleaks: gcp-api-key",
        ("AIza{35}",),
    ),
    Signature(
        "google-token",
        r"ya29\. gocspx-",
        EDGE + r"(?P<secret>ya29\.[\w.-]{20,}|GOCSPX-[\w-]{20,})",
        "trufflehog: googleoauth2",
        ("ya29.a0{60}", "GOCSPX-{28}"),
    ),
    Signature(
        "slack-token",
        "xox xapp-",
        EDGE + r"(?P<secret>(?:xox[abceoprs]|xapp)-[\w-]{10,})",
        "gitleaks: slack-bot-token",
        ("xoxb-123456789012-123456789012-{24}",),
        "digit",
    ),
    Signature(
        "webhook",
        r"hooks\.slack\.com /api/webhooks/",
        r"(?:hooks\.slack\.com/(?:services|workflows)|/api/webhooks)/(?P<secret>[\w/+-]{20,})",
        "gitleaks: slack-webhook-url",
        ("https://hooks.slack.com/services/«T{upper8}/B{upper8}/{24}»",),
    ),
    Signature(
        "stripe-key",
        "_live_ _test_ _prod_ whsec_",
        EDGE
        + r"(?P<secret>(?:sk|rk)_(?:live|test|prod)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{20,})",
        "gitleaks: stripe-access-token",
        ("sk_live_{24}", "whsec_{32}"),
    ),
    Signature(
        "sendgrid-key",
        r"sg\.",
        EDGE + r"(?P<secret>SG\.[\w-]{16,}\.[\w-]{16,})",
        "gitleaks: sendgrid-api-token",
        ("SG.{22}.{43}",),
    ),
    Signature(
        "azure-secret",
        "q~",
        r"(?:^|[^\w~.])(?P<secret>[\w~.]{3}\dQ~[\w~.-]{31,34})",
        "gitleaks: azure-ad-client-secret",
        ("Abc8Q~{34}",),
    ),
    Signature(
        "terraform-token",
        r"\.atlasv1\.",
        EDGE + r"(?P<secret>[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,70})",
        "gitleaks: hashicorp-tf-api-token",
        ("{14}.atlasv1.{64}",),
    ),
    Signature(
        "telegram-token",
        ":aa",
        r"(?:^|\D)(?P<secret>\d{8,12}:AA[\w-]{32,})",
        "gitleaks: telegram-bot-api-token",
        ("123456789:AA{33}",),
    ),
    Signature(
        "age-key",
        "age-secret-key-1",
        "AGE-SECRET-KEY-1[A-Z0-9]{20,}",
        "gitleaks: age-secret-key",
        ("AGE-SECRET-KEY-1{upper58}",),
    ),
    Signature(
        "jwt",
        "eyj",
        r"(?:^|[^\w-])(?P<secret>eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*)",
        "gitleaks: jwt",
        ("eyJ{30}.eyJ{60}.{43}",),
    ),
    Signature(
        "private-key",
        "ls0tls1crudjti",
        "LS0tLS1CRUdJTi[A-Za-z0-9+/=]{20,}",
        "a private key in Base64 (RFC 7468)",
        ("LS0tLS1CRUdJTi{80}",),
    ),
    # Its body is read by `patterns`: between the lines may stand what a program puts there.
    Signature(
        "private-key",
        "private key",
        "-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
        "RFC 7468; gitleaks: private-key",
        (
            "-----BEGIN RSA PRIVATE KEY-----\n{64}\n-----END RSA PRIVATE KEY-----",
            '"-----BEGIN PRIVATE KEY-----\\n" +\n  "{64}\\n" +\n  "-----END PRIVATE KEY-----"',
            "     1→«-----BEGIN PRIVATE KEY-----\n     2→{64}\n     3→-----END PRIVATE KEY-----»",
        ),
        "block",
    ),
    Signature(
        "login-option",
        "login sshpass mongo ldap sqlcmd redis-cli zip openssl smbclient",
        r"\b(?:(?:docker|podman|nerdctl|helm|az|oc|cf|skopeo|crane|buildah|registry)[ \t]+login\b"
        r"[^\n|;&]*?[ \t]-p|sshpass[ \t]+-p|mongo\w{0,10}\b[^\n|;&]*?[ \t]-p"
        r"|ldap\w{1,10}\b[^\n|;&]*?[ \t]-w|(?:sqlcmd|bcp)\b[^\n|;&]*?[ \t]-P"
        r"|(?:un)?zip\b[^\n|;&]*?[ \t]-P|redis-cli\b[^\n|;&]*?[ \t]-a"
        r"|openssl\b[^\n|;&]*?[ \t](?:-pass\w{0,3}[ \t]+|-k[ \t]+)(?:pass:)?"
        r"|smbclient\b[^\n|;&]*?[ \t]-U[ \t]*[^\s%]{1,60}%)"
        r"""[ \t=]{0,4}["']?(?P<secret>[^\s"'`$-][^\s"'`]{3,})""",
        "the manual pages of these programs",
        (
            "docker login -u ana -p «{20}» registry.example.com",
            "sshpass -p «{20}» ssh ana@host.example.com",
            "redis-cli -h cache.example.com -a «{20}» ping",
            "ldapsearch -x -D cn=admin -w «{20}» -b dc=example",
            "openssl enc -aes-256-cbc -pass pass:«{20}» -in a -out b",
            "mongosh --host db -u ana -p «{20}»",
        ),
        "source",
    ),
    Signature(
        "private-key",
        "private-lines",
        r"Private-Lines: \d{1,4}\r?\n"
        r"(?P<secret>(?:[A-Za-z0-9+/=]{16,64}\r?\n)*[A-Za-z0-9+/=]{8,64})",
        "PuTTY, the file of a private key",
        ("Private-Lines: 2\n«{64}\n{20}»\nPrivate-MAC: 1",),
    ),
    Signature(
        "private-key",
        r'"d\\{0,3}"',
        r"""\\{0,3}["']d\\{0,3}["']\s{0,4}:\s{0,4}\\{0,3}["'](?P<secret>[\w-]{20,})""",
        "RFC 7518, the private part of a key",
        ('{"kty": "EC", "crv": "P-256", "d": "«{43}»"}',),
        "digit",
    ),
    Signature(
        "login-option",
        r"net\s+user",
        r"(?i)\bnet[ \t]+user[ \t]+[\w.-]{1,40}[ \t]+(?P<secret>[^\s/*]\S{3,})",
        "net user of Windows",
        ("net user ana «{12}» /add",),
    ),
    Signature(
        "login-option",
        "htpasswd",
        r"\bhtpasswd\b[^\n|;&]*?[ \t]-[a-zA-Z]*b[a-zA-Z]*[ \t]+\S{1,200}[ \t]+\S{1,80}[ \t]+"
        r"""["']?(?P<secret>[^\s"'`$]{3,})""",
        "htpasswd(1)",
        ("htpasswd -b users.htpasswd bob «{12}»", "htpasswd -cbB f bob «{20}»"),
    ),
    Signature(
        "piped-password",
        "sudo --password-stdin --stdin",
        r"""\b(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+)?["']?(?P<secret>[^\s"'`$|-][^\s"'`|]{2,})"""
        r"""["']?[ \t]*\|[ \t]*(?:sudo[ \t]+-S|[^\n|;&]*?(?:--password-stdin|[ \t]--stdin))""",
        "sudo(8), docker-login(1), passwd(1)",
        (
            "echo «{12}» | sudo -S apt update",
            "echo '«{20}»' | docker login -u bob --password-stdin",
        ),
    ),
    Signature(
        "auth",
        r"""auth["':=\\]""",
        r"""(?i)(?:^|[^A-Za-z0-9_])(?P<name>_?auth)\\{0,3}["']?\s{0,4}[:=]\s{0,4}\\{0,3}["']?"""
        r"(?P<secret>[A-Za-z0-9+/=_.-]{12,})(?:[^(]|\z)",
        "docker's config.json, npmrc, Redis",
        ('{"auths": {"ghcr.io": {"auth": "«{28}»"}}}', "redis:\n  auth: «{20}»"),
        "opaque",
    ),
    # No blank between the option and the password.
    Signature(
        "login-option",
        "mysql mariadb 7z",
        r"\b(?:mysql\w{0,8}|mariadb(?:-\w{1,8})?|7za?)\b[^\n|;&]*?[ \t]-p"
        r"""["']?(?P<secret>[^\s"'`$-][^\s"'`]{3,})""",
        "the manual pages of mysql, mariadb and 7z",
        ("mysql -u root -p«{20}» shop", "7z x -p«{20}» archive.7z"),
    ),
    Signature(
        "login-option",
        "sqlplus sqlldr expdp impdp rman jdbc:oracle connect",
        r"(?i)\b(?:sqlplus|sqlldr|expdp|impdp|rman|connect|jdbc:oracle:\w+:)[^\n|;&]*?\b"
        r"""\w[\w.$-]{0,60}/["']?(?P<secret>[^\s"'@]{3,})["']?@""",
        "Oracle's easy connect",
        ("sqlplus scott/«{12}»@db.example.com/orcl", "jdbc:oracle:thin:scott/«{12}»@db:1521:x"),
    ),
    Signature(
        "login-option",
        "convertto-securestring",
        r"(?i)\bConvertTo-SecureString[ \t]+(?:-String[ \t]+)?"
        r"""["']?(?P<secret>[^\s"'`$-][^\s"'`]{2,})""",
        "PowerShell, ConvertTo-SecureString",
        ('ConvertTo-SecureString "«{20}»" -AsPlainText -Force',),
    ),
    Signature(
        "curl-password",
        "curl https?",
        r"\b(?:curl|https?)\b[^\n]*?\s(?:-u|--user|--proxy-user|-a|--auth)[ =]?"
        r"""["']?[^\s:"']{1,80}:(?P<secret>[^\s"']{3,})""",
        "gitleaks: curl-auth-user",
        ("curl -sS -u ana:«{20}» https://example.com/api",),
    ),
    Signature(
        "sql-password",
        "identified passw",
        r"(?i)\b(?:identified\s{1,4}(?:with\s{1,4}\S{1,60}\s{1,4})?by|password)\s{1,4}"
        r"(?:as\s{1,4})?'(?P<secret>[^'\n]{1,200})'(?:\s{0,4}[^\s:=\]]|\s{0,4}\z)",
        "CREATE USER and ALTER ROLE of MySQL, Oracle and PostgreSQL",
        ("CREATE USER ana IDENTIFIED BY '«{20}»'", "ALTER ROLE ana WITH PASSWORD '«{20}»'"),
    ),
    Signature(
        "url-password",
        "://",
        r"""://[^\s/:@"'<>\[?#]*:(?P<secret>[^\s"'<>?]+)@""",
        "RFC 3986, user information",
        ("postgresql://ana:«{20}»@db.example.com:5432/shop", "redis://:«{20}»@localhost:6379"),
        "no port",
    ),
    Signature(
        "pgpass",
        r":5432: :\*:",
        r"(?m)^[^\s:#]{1,200}:(?:5432|\*):[^\s:]{1,80}:[^\s:]{1,80}:(?P<secret>\S{3,})$",
        "libpq, the password file",
        ("db.example.com:5432:shop:ana:«{20}»",),
    ),
    Signature(
        "url-signature",
        "sig= signature= signature%3d",
        r"(?i)[?&](?:X-(?:Amz|Goog)-Signature|sig|signature)=(?P<secret>[\w%+/=.-]{16,})",
        "presigned URLs of S3 and Google Cloud Storage, SAS of Azure",
        (
            "https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature=«{hex64}»",
            "https://a.blob.core.windows.net/c/b?sv=2022&sig=«{43}»",
        ),
    ),
    Signature(
        "authorization",
        "authorization",
        r"""(?i)\bauthorization\\{0,3}["']?\s{0,8}[:=]\s{0,8}\\{0,3}["']?"""
        r"""(?:[A-Za-z][\w-]{1,20}\s{1,8})?(?P<secret>[^\s"'\\]{6,})""",
        "RFC 9110, Authorization",
        (
            "Authorization: token «{20}»",
            'curl -H "Authorization: Bearer «{20}»" https://example.com',
            "authorization: Basic «{24}»",
            '[["Authorization", "Bearer «{24}»"]]',
        ),
        "opaque unquoted",
    ),
    Signature(
        "cookie",
        "cookie",
        r"""(?i)\b(?:set-)?cookie\\{0,3}["']?\s{0,8}:\s{0,8}\\{0,3}["']?"""
        r"""(?P<secret>[^\s=;"'\\\[]{1,80}=[^\r\n"'\\]{3,})""",
        "RFC 6265",
        ("Cookie: «sessionid={20}; theme=dark»",),
    ),
    Signature(
        "bearer-token",
        "bearer",
        r"(?i)\bbearer\s{1,8}(?P<secret>[\w.~+/-]{16,}={0,2})",
        "RFC 6750",
        ("curl -H 'X: bearer «{32}»'",),
        "opaque unquoted",
    ),
)
"""Secrets that are known by their form, or by what stands around them.

`places` knows the others, which stand behind a name.
"""
