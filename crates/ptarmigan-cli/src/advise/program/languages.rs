//! Words for the ways in which programs start children, in the language of a program.
//!
//! Only ways that the documentation of a language describes are named. Ruby, Perl and PHP have no
//! note in a recording and are known by their names, or by those of their files.
use crate::advise::facts::ProgramFacts;
use ptarmigan_trace::Runtime;
use std::collections::BTreeSet;

/// The language of a program, as far as it decides how children are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// The C library's calls can be used.
    C,
    /// A Java virtual machine.
    Java,
    /// Node.js.
    Node,
    /// CPython.
    Python,
    /// Ruby.
    Ruby,
    /// Perl.
    Perl,
    /// PHP.
    Php,
}

impl Language {
    /// Returns the language of a program.
    pub fn of(program: &ProgramFacts) -> Self {
        let has = |runtime| program.runtimes.contains(&runtime);
        let is = |name: &&str| {
            program.name.starts_with(*name) || program.files().any(|file| file.starts_with(*name))
        };
        let named = |names: &[&str]| names.iter().any(is);
        if has(Runtime::Jvm) || named(&["java"]) {
            Language::Java
        } else if has(Runtime::V8) || named(&["node"]) {
            Language::Node
        } else if has(Runtime::Python) || named(&["python"]) {
            Language::Python
        } else if named(&["ruby", "puma", "unicorn"]) {
            Language::Ruby
        } else if named(&["perl"]) {
            Language::Perl
        } else if named(&["php"]) {
            Language::Php
        } else {
            Language::C
        }
    }

    /// Returns the way to start a program without a copy of the address space.
    pub fn starting(self) -> &'static str {
        match self {
            Language::C => "posix_spawn, vfork, or clone(CLONE_VM | CLONE_VFORK) instead of fork.",
            Language::Java => {
                "Java: -Djdk.lang.Process.launchMechanism=VFORK, or the default of Java 13 and later \
                 (POSIX_SPAWN), instead of FORK."
            }
            Language::Node => {
                "Node.js: child_process has no switch for it; start a small helper process by \
                 child_process.fork before memory grows, and let that one start the programs."
            }
            Language::Python => {
                "Python: subprocess uses vfork from 3.10 on, unless preexec_fn, user, group or extra_groups \
                 is given; os.posix_spawn instead of os.fork and os.execv."
            }
            Language::Ruby => {
                "Ruby: start the programs from a small helper process that is forked before memory grows."
            }
            Language::Perl => {
                "Perl: start the programs from a small helper process that is forked before memory grows."
            }
            Language::Php => "PHP: start the programs from a small helper process.",
        }
    }

    /// Returns the way to fork children from a small process.
    pub fn forking_early(self) -> &'static str {
        match self {
            Language::C => {
                "fork the children before the memory is filled, or from a small process that is started \
                 first; madvise(MADV_DONTFORK) on mappings that children do not need."
            }
            Language::Python => {
                "Python: multiprocessing.set_start_method(\"forkserver\"), or start the pool before the data \
                 is loaded; gc.freeze() before the fork saves copies, not the fork."
            }
            Language::Java | Language::Node | Language::Ruby | Language::Perl | Language::Php => {
                "fork the children before the memory is filled, or from a small process that is started \
                 first."
            }
        }
    }

    /// Returns the way to give a child more work than one request.
    pub fn keeping_children(self) -> &'static str {
        match self {
            Language::Python => {
                "Python: workers that stay (multiprocessing.Pool without maxtasksperchild, \
                 concurrent.futures.ProcessPoolExecutor); socketserver.ThreadingMixIn instead of \
                 ForkingMixIn; gunicorn: a larger max_requests, or 0."
            }
            Language::Ruby => "Ruby: a pool of workers that each serve many requests.",
            _ => {
                "let a child take the next request instead of ending: a pool of workers, or a larger number \
                 of requests for each child (Apache: MaxConnectionsPerChild; AFL: persistent mode, \
                 __AFL_LOOP)."
            }
        }
    }

    /// Returns the way to do several jobs with one start.
    pub fn starting_once(self) -> &'static str {
        match self {
            Language::C => {
                "one process for many items: an option for batches (find -exec … +, xargs, git cat-file \
                 --batch), or the work in the program that starts it; a static program has fewer faults at its \
                 start."
            }
            Language::Python => {
                "Python: a process that takes one job after another, such as a worker of \
                 multiprocessing.Pool; or one that imports all modules and forks for each job \
                 (multiprocessing: start method forkserver with set_forkserver_preload instead of spawn)."
            }
            Language::Java => "Java: one virtual machine that runs the jobs as threads.",
            Language::Node => "Node.js: one process, or child_process.fork workers that stay.",
            Language::Ruby => "Ruby: a process that stays, or that loads everything and forks for each job.",
            Language::Perl => "Perl: a process that stays: FastCGI instead of CGI, a loop in the script.",
            Language::Php => "PHP: php-fpm instead of php-cgi; one script with a loop instead of many.",
        }
    }

    /// Returns the way to let an array grow without a copy.
    pub fn growing(self) -> &'static str {
        match self {
            Language::C => {
                "realloc() or mremap(MREMAP_MAYMOVE) instead of a new mapping and a copy; or reserve the whole \
                 size first (C++: reserve(), Rust: with_capacity())."
            }
            Language::Python => "Python: collect the parts in a list and join them once (numpy.concatenate).",
            Language::Java | Language::Node | Language::Ruby | Language::Perl | Language::Php => {
                "reserve the whole size first."
            }
        }
    }

    /// Returns the way to leave inherited memory shared.
    pub fn keeping_shared(self) -> &'static str {
        match self {
            Language::Python => {
                "Python: gc.disable() early in the parent, gc.freeze() right before the fork (3.7 and \
                 later), and gc.enable() in the children, so that the collector does not write to inherited \
                 objects; import modules and load data before the fork (gunicorn: preload_app). Counts of \
                 references are written all the same."
            }
            Language::Ruby => {
                "Ruby: before the fork Process.warmup (3.3 and later), or GC.start four times and GC.compact (2.7 \
                 and later), so that the collector has marked all objects as old in the parent."
            }
            _ => {
                "keep what children write (counts, links, marks of a collector) apart from the data that \
                 they read, and finish collections and compactions before the fork."
            }
        }
    }
}

/// Returns a way in the languages of several programs.
pub fn each<'f>(
    programs: impl Iterator<Item = &'f ProgramFacts>,
    way: fn(Language) -> &'static str,
) -> String {
    let languages: BTreeSet<Language> = programs.map(Language::of).collect();
    languages.into_iter().map(way).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(name: &str, runtimes: &[Runtime]) -> ProgramFacts {
        let mut facts = ProgramFacts::default();
        name.clone_into(&mut facts.name);
        facts.runtimes.extend(runtimes);
        facts
    }

    #[test]
    fn a_language_is_told_by_the_runtime_or_the_name() {
        let of = |name, runtimes: &[Runtime]| Language::of(&facts(name, runtimes));
        assert_eq!(of("server", &[Runtime::Glibc, Runtime::Jvm]), Language::Java);
        assert_eq!(of("gunicorn", &[Runtime::Glibc, Runtime::Python]), Language::Python);
        assert_eq!(of("python3.11", &[]), Language::Python);
        assert_eq!(of("node", &[]), Language::Node);
        assert_eq!(of("perl", &[Runtime::Glibc]), Language::Perl);
        assert_eq!(of("server", &[Runtime::Glibc]), Language::C);
    }

    #[test]
    fn runtimes_are_not_told_to_call_c() {
        let (java, server) = (facts("java", &[Runtime::Jvm]), facts("server", &[]));
        let words = each([&java].into_iter(), Language::starting);
        assert!(words.contains("launchMechanism=VFORK") && !words.contains("posix_spawn,"), "{words}");
        let words = each([&java, &server, &java].into_iter(), Language::starting);
        assert!(words.starts_with("posix_spawn, vfork") && words.matches("Java:").count() == 1, "{words}");
    }
}
