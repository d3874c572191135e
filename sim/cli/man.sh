#!/bin/sh
# Man pages of a program and of each of its commands, from what they print for --help.
#   sim/cli/man.sh PROGRAM FOLDER
# writes FOLDER/NAME.1 and FOLDER/NAME-COMMAND.1.
set -eu
program=$1 folder=$2 name=$(basename "$1")
mkdir -p "$folder"

# A heading is a line that begins at the margin and ends in a colon; options and commands are
# indented lines of two columns. Examples stay as they are.
page() {  # TITLE < help
  awk -v title="$1" -v version="$version" '
    function safe(text) {
      gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text)
      if (text ~ /^[.\x27]/) text = "\\\\&" text
      return text
    }
    function verbatim(on) {
      if (on != literal) print on ? ".nf" : ".fi"
      literal = on
    }
    function heading(text) { verbatim(0); item = 0; print ".SH " toupper(safe(text)) }
    { lines[NR] = $0 }
    END {
      printf ".TH \"%s\" 1 \"\" \"%s\" \"Stallcast\"\n", toupper(safe(title)), safe(version)
      summary = lines[1]
      for (first = 2; lines[first] != "" && lines[first] !~ /^(Usage|Examples?):/ && first <= NR;
           ++first)
        summary = summary " " lines[first]
      rest = ""
      if (match(summary, /\. /)) {
        rest = substr(summary, RSTART + 2)
        summary = substr(summary, 1, RSTART)
      }
      sub(/\.$/, "", summary)
      print ".SH NAME"; print safe(title) " \\- " safe(summary)
      for (i = first; i <= NR; ++i) if (sub(/^Usage: /, "", lines[i])) {
        print ".SH SYNOPSIS"; print safe(lines[i]); lines[i] = ""
        break
      }
      print ".SH DESCRIPTION"
      if (rest != "") { print safe(rest); print ".PP" }
      for (i = first; i <= NR; ++i) {
        line = lines[i]
        if (line ~ /^[A-Z][^:]*:$/) {
          heading(substr(line, 1, length(line) - 1)); example = line ~ /^Example/
        } else if (line == "") {
          if (example) { verbatim(0); example = 0 }
          print item ? "" : ".PP"
        } else if (example) {
          verbatim(1); print safe(line)
        } else if (line ~ /^ ? ?[^ ].*  +[^ ]/ && line ~ /^  ?[^ ]/) {
          match(substr(line, 3), /  +/)
          print ".TP"; print "\\fB" safe(substr(line, 3, RSTART - 1)) "\\fR"
          print safe(substr(line, 2 + RSTART + RLENGTH)); item = 1
        } else if (line ~ /^  ?[^ ]/) {
          print ".TP"; print "\\fB" safe(substr(line, 3)) "\\fR"; item = 1
        } else {
          sub(/^ +/, "", line); print safe(line)
        }
      }
      verbatim(0)
    }'
}

version=$("$program" --version)
"$program" --help | page "$name" >"$folder/$name.1"
for command in $("$program" --help | awk '/^[A-Z].*:$/ { on = /^(Sub)?[Cc]ommands:/i } \
    toupper($0) ~ /^(SUB)?COMMANDS:/ { on = 1; next } on && /^  [a-z]/ { print $1 }'); do
  "$program" "$command" --help | page "$name-$command" >"$folder/$name-$command.1"
done
