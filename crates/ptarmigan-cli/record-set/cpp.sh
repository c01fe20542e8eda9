#!/bin/bash
# Load: g++, with optimisations, on two files that use much of the standard library.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for i in 1 2; do
    cat >"$dir/$i.cc" <<'END'
#include <algorithm>
#include <map>
#include <random>
#include <regex>
#include <string>
#include <thread>
#include <vector>
int words(const std::string &text) {
    std::map<std::string, std::vector<int>> found;
    std::regex word("([a-z]+)-([0-9]+)");
    for (std::sregex_iterator at(text.begin(), text.end(), word), end; at != end; ++at)
        found[at->str(1)].push_back(std::stoi(at->str(2)));
    for (auto &[name, numbers] : found)
        std::sort(numbers.begin(), numbers.end());
    return found.size();
}
END
    g++ -std=c++17 -O2 -c -o "$dir/$i.o" "$dir/$i.cc" || exit 1
done
