#!/usr/bin/env bash
# Python 3.10 to 3.14, email: a mail that is attached in base64 (message/rfc822, which RFC 2046 does not allow, and which
# Exchange and ticket systems write) is parsed before it is decoded. It comes as a mail without headers whose text is the
# base64, in the policies `compat32` and `default`; its one defect is that a line after the headers is missing. And a text
# in base64 that is cut after one digit of four comes as it is encoded, not as far as it goes.
# Seen:
#   compat32: headers [], text 'U3ViamVjdDogVGhlIHRpZGUKCkhpZ2ggd2F0ZXI=', defects ['MissingHeaderBodySeparatorDefect']
#   default: headers [], text 'U3ViamVjdDogVGhlIHRpZGUKCkhpZ2ggd2F0ZXI=', defects ['MissingHeaderBodySeparatorDefect']
#   cut: b'SGlnaCB3YXRlc'
set -euo pipefail
python3 - <<'PYTHON'
import email
import sys
from email import policy

MAIL = (
    b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: message/rfc822\r\n"
    b"Content-Transfer-Encoding: base64\r\n\r\nU3ViamVjdDogVGhlIHRpZGUKCkhpZ2ggd2F0ZXI=\r\n--b--\r\n"
)
seen = []
for name, rules in (("compat32", policy.compat32), ("default", policy.default)):
    parts = list(email.message_from_bytes(MAIL, policy=rules).walk())
    text, defects = parts[-1].get_payload().strip(), [type(defect).__name__ for part in parts for defect in part.defects]
    seen.append((parts[-1].keys(), text, defects))
    print(f"{name}: headers {parts[-1].keys()}, text {text!r}, defects {defects}")
cut = email.message_from_bytes(b"Content-Transfer-Encoding: base64\r\n\r\nSGlnaCB3YXRlc").get_payload(decode=True)
print(f"cut: {cut!r}")
if seen != 2 * [([], "U3ViamVjdDogVGhlIHRpZGUKCkhpZ2ggd2F0ZXI=", ["MissingHeaderBodySeparatorDefect"])] or cut != b"SGlnaCB3YXRlc":
    sys.exit("changed: the attached mail is decoded, or the defect is named")
PYTHON
