#!/usr/bin/env bash
# Writes the seed corpus of fuzz_idx into a folder: tests/fuzz/make_corpus_idx.sh FOLDER
# shellcheck disable=SC2059 # the escapes are meant
set -eu
[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p -- "$1"
cd -- "$1"
images='\0\0\010\003' labels='\0\0\010\001'

printf "$images"'\0\0\0\002\0\0\0\003\0\0\0\002abcdefghijkl' >images
printf "$labels"'\0\0\0\005\005\0\004\001\011' >labels
printf "$labels"'\0\0\0\002\0\012' >label_10
printf "$labels"'\0\0\0\003\0\001' >labels_count_plus_1
printf "$images"'\0\0\0\001\0\0\0\003\0\0\0\002abcdefghijkl' >images_count_minus_1
printf "$images"'\0\0\0\0\0\0\0\003\0\0\0\002' >images_none
printf "$images"'\377\377\377\377\377\377\377\377\377\377\377\377' >images_huge
printf "$images"'\0\001\0\0\0\001\0\0\0\0\0\001' >images_65536_65536_1
printf "$images"'\0\0\0\001\0\0\0' >truncated_header
printf '\0\0\015\003\0\0\0\001\0\0\0\001\0\0\0\001abcd' >floats
for file in images labels images_count_minus_1 labels_count_plus_1 images_huge truncated_header; do
  gzip -nc <"$file" >"$file.gz"
done
{ printf "$images"'\0\0\0\200\0\0\0\034\0\0\0\034'; head -c 100352 /dev/zero; } | gzip -nc >zeros.gz
cat images.gz images.gz >two_members.gz
{ cat images.gz; printf x; } >trailing.gz
