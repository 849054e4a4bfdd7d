# Writes a C file with the files of the screen (src/server/http/screen_files.h).
#
#   cmake -DFOLDER=src/screen -DOUTPUT=screen_files.c -P embed.cmake
#
# The result depends only on the names and contents of the files. Scripts and styles lose their indentation, a third of
# their size; no string of theirs contains the end of a line. The page names the other files below their version, a hash of
# all of them: "style.css" becomes "0123456789ab/style.css".
file(GLOB paths ${FOLDER}/*.css ${FOLDER}/*.js ${FOLDER}/*.svg)
list(SORT paths)
list(APPEND paths ${FOLDER}/index.html)
set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")

set(text "#include \"server/http/screen_files.h\"\n\n")
set(rows "")
set(sums "")
set(number 0)
foreach(path ${paths})
    file(READ ${path} bytes)
    if(path MATCHES "\\.(js|css)$")
        string(REGEX REPLACE "\n +" "\n" bytes "${bytes}")
    elseif(path MATCHES "\\.html$") # the last one
        string(SHA256 version "${sums}")
        string(SUBSTRING ${version} 0 12 version)
        string(REGEX REPLACE "(href|src)=\"([a-z]+\\.[a-z]+)\"" "\\1=\"${version}/\\2\"" bytes "${bytes}")
    endif()
    string(SHA256 sum "${bytes}")
    string(SUBSTRING ${sum} 0 16 sum)
    string(APPEND sums "${sum}")
    string(HEX "${bytes}" bytes)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    get_filename_component(name ${path} NAME)
    string(REGEX REPLACE ".*\\." "" ending ${name})
    string(APPEND text "static const unsigned char screen_file_${number}[] = {${bytes}};\n")
    string(APPEND rows "    {\"${name}\", \"${type_${ending}}\", \"\\\"${sum}\\\"\", screen_file_${number}, "
        "sizeof screen_file_${number}},\n")
    math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "${text}\nconst char truce__screen_version[] = \"${version}\";\n"
    "const struct screen_file truce__screen_files[] = {\n${rows}    {0}};\n")
