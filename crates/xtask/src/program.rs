//! Builds a small program of one file, and says the command that runs it.
use crate::script::output;
use std::path::Path;

/// Builds the program in `source`, in directory `dir`, as its extension says; a program in C with
/// the compiler and the options of `build`. Returns its command.
///
/// # Errors
/// The script that failed and what it has said, or the extension, if no rule is known for it.
pub fn command_of(source: &Path, dir: &Path, build: Option<&str>) -> Result<Vec<String>, String> {
    let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let extension = source.extension().unwrap_or_default().to_string_lossy().into_owned();
    let binary = dir.join(&name).display().to_string();
    let (source, dir) = (source.display().to_string(), dir.display().to_string());
    let build = match &*extension {
        "c" => format!("{} -o {binary} {source}", build.unwrap_or("cc -O1 -pthread")),
        "go" => format!("go build -o {binary} {source}"),
        "cs" => {
            output(&format!("mcs -out:{binary} {source}"))?;
            return Ok(vec!["mono".to_owned(), binary]);
        }
        // Next to the source, ghc would leave files.
        "hs" => {
            format!("ghc -v0 -O1 -threaded -rtsopts -outputdir {binary}.build -o {binary} {source}")
        }
        "rb" => return Ok(vec!["ruby".to_owned(), source]),
        "sh" => return Ok(vec!["bash".to_owned(), source]),
        "js" => return Ok(vec!["node".to_owned(), source]),
        "php" => return Ok(vec!["php".to_owned(), source]),
        "pl" => return Ok(vec!["perl".to_owned(), source]),
        "java" => {
            output(&format!("javac -d {dir} {source}"))?;
            return Ok(["java", "-cp", &dir, &name].map(str::to_owned).to_vec());
        }
        // The file python3 may be a script that looks for an interpreter.
        "py" => return Ok(vec![output("python3 -c 'import sys; print(sys.executable)'")?, source]),
        other => return Err(format!("{source}: no rule builds .{other}")),
    };
    output(&build).map(|_| vec![binary])
}

/// Returns the command that runs `program` with words, which are arguments or variables as
/// `NAME=VALUE`.
pub fn with_words(program: &[String], words: &[String]) -> Vec<String> {
    let (variables, arguments): (Vec<String>, Vec<String>) =
        words.iter().cloned().partition(|word| word.contains('='));
    let env = (!variables.is_empty()).then(|| "env".to_owned());
    env.into_iter().chain(variables).chain(program.iter().cloned()).chain(arguments).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_run_by_their_shell_and_unknown_files_are_refused() {
        let command = |file: &str| command_of(Path::new(file), Path::new("/tmp"), None);
        assert_eq!(command("a/b.sh").unwrap(), ["bash", "a/b.sh"]);
        assert_eq!(command("a/b.doc").unwrap_err(), "a/b.doc: no rule builds .doc");
    }

    #[test]
    fn variables_stand_before_the_program() {
        let words = |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
        let program = words(&["./a"]);
        assert_eq!(with_words(&program, &words(&["cured"])), ["./a", "cured"]);
        assert_eq!(with_words(&program, &words(&["b", "X=1", "Y=2"])), ["env", "X=1", "Y=2", "./a", "b"]);
    }
}
