#!/usr/bin/env bash
# Writes the seed corpus of a fuzz target into a folder:
# tests/fuzz/make_corpus.sh idx|record|tfrecord|image|cifar10|safetensors FOLDER
# Checksums are left out where the target makes them right.
# shellcheck disable=SC2059 # the escapes are meant
set -eu
[ $# = 2 ] || { echo "usage: $0 idx|record|tfrecord|image|cifar10|safetensors FOLDER" >&2; exit 2; }
mkdir -p -- "$2"
cd -- "$2"

u32() { # little-endian
  local number
  for number; do
    printf "$(printf '\\x%02x' $((number & 255)) $((number >> 8 & 255)) $((number >> 16 & 255)) $((number >> 24 & 255)))"
  done
}
zeros() { head -c "$1" /dev/zero; }

# record SAMPLES COMPRESSION BLOCKS, the blocks of two samples of 3 x 2 bytes on stdin
record() {
  local body data
  body=$(mktemp) && cat >"$body" && data=$(stat -c %s "$body")
  printf 'HSRECORD'
  u32 1 0x01020304 "$1" 0 "$1" 0 0 0 0 1 3 2 1 10
  printf '\0\0\200\76\0\0\0\77'
  u32 "$2" 2 "$3" 0 4096 0 $((4096 + data)) 0 $((4096 + data + 16 * $3 + 2 * $1)) 0 0 0
  printf 'numbered'
  zeros $((4096 - 128))
  cat "$body"
  local block offset=4096 size
  for ((block = 0; block < $3; ++block)); do
    size=$((block + 1 < $3 ? 12 : data - 12 * ($3 - 1)))
    [ "$2" = 0 ] || size=$data
    u32 $offset 0 "$size" 0
    offset=$((offset + size))
  done
  zeros $((2 * $1))
  rm -f "$body"
}

case $1 in
  idx)
    images='\0\0\010\003' labels='\0\0\010\001'
    printf "$images"'\0\0\0\002\0\0\0\003\0\0\0\002abcdefghijkl' >images
    printf "$labels"'\0\0\0\005\005\0\004\001\011' >labels
    printf '\0\0\013\001\0\0\0\002\0\003\0\011' >labels_of_two_bytes
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
    { cat images.gz; printf x; } >trailing.gz ;;
  record)
    printf 'abcdefghijklmnopqr' | record 3 0 2 >raw
    printf 'abcdef' | record 1 0 1 >one
    printf '\x78\x9c\x4b\x4c\x4a\x4e\x49\x4d\x4b\xcf\xc8\xcc\xca\xce\x01\x00\x1e\xb8\x04\xcf' | record 2 1 1 >packed
    head -c 4095 raw >cut_off ;;
  tfrecord)
    channels='\x0a\x11\x0a\x08channels\x12\x05\x1a\x03\x0a\x01\x01' height='\x0a\x0f\x0a\x06height\x12\x05\x1a\x03\x0a\x01\x02'
    image='\x0a\x13\x0a\x05image\x12\x0a\x0a\x08\x0a\x06abcdef' label='\x0a\x0e\x0a\x05label\x12\x05\x1a\x03\x0a\x01\x07'
    width='\x0a\x0e\x0a\x05width\x12\x05\x1a\x03\x0a\x01\x03'
    printf '\x0a\x59'"$channels$height$image$label$width" >example
    printf '\x0a\x3c'"$height$image$label" >no_shape
    printf '\x0a\x58'"$channels$height$image$width"'\x0a\x0d\x0a\x05label\x12\x04\x1a\x02\x08\x07' >not_packed
    printf '\x59\0\0\0\0\0\0\0\0\0\0\0' >header ;;
  image)
    printf 'P5\n3 2\n255\nabcdef' >pgm
    printf 'P5 # a comment\n1 1 255 x' >comment
    grey='\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x03\0\0\0\x02\x08'
    printf "$grey"'\0\0\0\0\xb8\x1f\x39\xc6\0\0\0\x10IDAT\x78\x9c\x63\x64\x30\x32\x62\x98\x76\xe2\x17\0\x06\x82\x02\xbe\x2e\x34\x5b\x9d\0\0\0\0IEND\xae\x42\x60\x82' >grey.png
    printf '\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x02\0\0\0\x02\x08\x02\0\0\0\xfd\xd4\x9a\x73\0\0\0\x16IDAT\x78\x9c\x63\x64\x10\xd5\xb2\xb7\xb7\x67\xa8\x9b\xbc\x62\xef\xa5\xe7\0\x16\xc0\x05\x2d\xf9\x21\x7e\x84\0\0\0\0IEND\xae\x42\x60\x82' >colour.png
    printf '\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x03\0\0\0\x01\x02\x03\0\0\0\x66\x8e\xfc\x27\0\0\0\x09PLTE\x0a\x14\x1e\x28\x32\x3c\x46\x50\x5a\x16\xac\x84\x74\0\0\0\x0aIDAT\x78\x9c\x63\x68\x01\0\0\x86\0\x85\xbc\xf5\xcd\xd6\0\0\0\0IEND\xae\x42\x60\x82' >palette.png
    steps='\xff\xdb\0\x43\0' && for ((i = 0; i < 64; ++i)); do steps+='\x08'; done
    codes='\xff\xc4\0\x15\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\xff\xc4\0\x14\x10\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
    printf '\xff\xd8'"$steps$codes"'\xff\xc0\0\x0b\x08\0\x08\0\x10\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\0\x3f\0\x72\x07\xff\xd9' >grey.jpg
    exif='MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0'
    printf '\xff\xd8\xff\xe1\0\x22Exif\0\0'"$exif$steps$codes"'\xff\xc0\0\x0b\x08\0\x08\0\x10\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\0\x3f\0\x72\x07\xff\xd9' >turned.jpg
    printf "$grey"'\0\0\0\0\xb8\x1f\x39\xc6\0\0\0\x1aeXIf'"$exif"'\0\0\0\0\0\0\0\x10IDAT\x78\x9c\x63\x64\x30\x32\x62\x98\x76\xe2\x17\0\x06\x82\x02\xbe\x2e\x34\x5b\x9d\0\0\0\0IEND\xae\x42\x60\x82' >turned.png
    printf '\xff\xd8'"$steps$codes"'\xff\xc0\0\x11\x08\0\x08\0\x08\x03\x01\x22\0\x02\x11\0\x03\x11\0\xff\xda\0\x0c\x03\x01\0\x02\0\x03\0\0\x3f\0\0\x00\x3f\xff\xd9' >colour.jpg
    printf '\xff\xd8'"$steps$codes"'\xff\xc2\0\x0b\x08\0\x08\0\x08\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\0\0\0\x72\x7f\xff\xda\0\x08\x01\x01\0\x01\x3f\0\x7f\xff\xd9' >progressive.jpg ;;
  cifar10)
    { printf '\x07'; zeros 3072; } >one
    { printf '\x00'; zeros 3072; printf '\x0a'; zeros 3072; } >label_10
    zeros 3072 >short ;;
  safetensors) # two bytes for the size of the data, then the header
    entry() { printf '"%s":{"dtype":"%s","shape":%s,"data_offsets":%s}' "$@"; }
    { printf '\0\0{}'; } >nothing
    { printf '\x10\0{"__metadata__":{"k":"v"},' && entry a F32 '[2,2]' '[0,16]' && printf '}   '; } >one
    { printf '\x0b\0{' && entry b I64 '[1]' '[0,8]' && printf , && entry a U8 '[3,1]' '[8,11]' && printf '}'; } >two
    { printf '\x04\0{' && entry e BF16 '[0,3]' '[0,0]' && printf , && entry s I32 '[]' '[0,4]' && printf '}'; } >scalar
    { printf '\0\0{' && entry a U8 '[4294967296,4294967296,0]' '[0,0]' && printf '}'; } >wraps
    { printf '\0\0{' && entry a U8 '[429496726,4294967296,0]' '[0,0]' && printf '}'; } >wide_strides
    { printf '\x09\0{"__metadata__":{"crc32c":"00000000","crc32c.a":"e3069283"},' && entry a U8 '[9]' '[0,9]' && printf '}'; } >sums
    { printf '\x02\0\0\0\0\0\0\0{}'; } >whole ;;
  *) echo "$0: $1: no such target" >&2; exit 2 ;;
esac
