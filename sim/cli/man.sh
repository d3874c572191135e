#!/bin/sh
# Man pages of a program and of each of its commands, from what they print for --help.
#   sim/cli/man.sh PROGRAM FOLDER
# writes FOLDER/NAME.1 and FOLDER/NAME-COMMAND.1.
set -eu
program=$1 folder=$2 name=$(basename "$1")
mkdir -p "$folder"
version=$("$program" --version)

# Of a help text the first sentence is the name's line. A line at the margin that follows an empty one
# and ends in a colon begins a section, whose lines are two columns. Examples stay as they are up to
# an empty line. All other text is the description.
page() { # TITLE < help
  awk -v title="$1" -v version="$version" '
    function safe(text) {
      gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text)
      return text ~ /^[.\047]/ ? "\\&" text : text
    }
    function item(name, text) {
      sections = sections ".TP\n\\fB" safe(name) "\\fR\n" (text == "" ? "" : safe(text) "\n")
    }
    function prose(text) {
      if (text == "") { if (description != "") pending = ".PP\n"; return }
      description = description pending safe(text) "\n"; pending = ""
    }
    NR == 1 { summary = $0; heading = 1; next }
    heading && $0 != "" && !/^(Usage|Examples?):/ { summary = summary " " $0; next }
    { heading = 0; previous = line_before; line_before = $0 }
    /^Usage: / { synopsis = substr($0, 8); kind = ""; next }
    /^Examples?:/ { kind = "examples"; next }
    /^[A-Z][^:.]*:$/ && (previous == "" || kind == "options") {
      kind = "options"
      sections = sections ".SH \"" toupper(substr($0, 1, length($0) - 1)) "\"\n"
      next
    }
    $0 == "" { if (kind != "") kind = ""; prose(""); next }
    kind == "examples" { examples = examples safe($0) "\n"; next }
    kind == "options" && /^ ? ?[^ ]/ {
      line = $0; sub(/^ +/, "", line)
      if (match(line, /  +/)) item(substr(line, 1, RSTART - 1), substr(line, RSTART + RLENGTH))
      else item(line, "")
      next
    }
    kind == "options" {
      line = $0; sub(/^ +/, "", line); sections = sections safe(line) "\n"; next
    }
    { prose($0) }
    END {
      if (match(summary, /\. /)) {
        description = safe(substr(summary, RSTART + 2)) "\n" \
            (description == "" ? "" : ".PP\n" description)
        summary = substr(summary, 1, RSTART)
      }
      sub(/\.$/, "", summary)
      printf ".TH \"%s\" 1 \"\" \"%s\" \"Stallcast\"\n", toupper(title), version
      printf ".SH NAME\n%s \\- %s\n", safe(title), safe(summary)
      if (synopsis != "") printf ".SH SYNOPSIS\n%s\n", safe(synopsis)
      if (description != "") printf ".SH DESCRIPTION\n%s", description
      if (examples != "") printf ".SH EXAMPLES\n.nf\n%s.fi\n", examples
      printf "%s", sections
    }'
}

"$program" --help | page "$name" >"$folder/$name.1"
for command in $("$program" --help |
  awk '/^[A-Z].*:$/ { on = toupper($0) ~ /COMMANDS:$/ } $0 == "" { on = 0 } on && /^  [a-z]/ { print $1 }'); do
  "$program" "$command" --help | page "$name-$command" >"$folder/$name-$command.1"
done
