# Writes a header with the bytes of a file: cmake -D file=... -D header=... -D name=... -P write_bytes.cmake
cmake_minimum_required(VERSION 3.25)

file(READ ${file} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${header} "inline constexpr unsigned char ${name}[] = {\n${bytes}};\n")
