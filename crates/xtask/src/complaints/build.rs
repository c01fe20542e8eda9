//! Builds the programs of complaints, and makes their commands.
use super::table::Case;
use std::path::Path;
use std::process::Command;

/// Builds the program of a case, whose file is in `home`, in `dir`. Returns its command.
///
/// # Errors
/// The text of the compiler, if it cannot be built; or the name, if nobody knows how to run it.
pub fn program(case: &Case, home: &Path, dir: &Path) -> Result<Vec<String>, String> {
    let source = home.join(&case.file).display().to_string();
    let binary = dir.join(case.name()).display().to_string();
    let build = match case.extension() {
        "c" => format!("{} -o {binary} {source}", case.build.as_deref().unwrap_or("cc -O1 -pthread")),
        "go" => format!("go build -o {binary} {source}"),
        "cs" => {
            said(&format!("mcs -out:{binary} {source}"))?;
            return Ok(vec!["mono".to_owned(), binary]);
        }
        // Next to the source, ghc would leave files.
        "hs" => {
            let dir = format!("{binary}.build");
            format!("ghc -v0 -O1 -threaded -rtsopts -outputdir {dir} -o {binary} {source}")
        }
        "rb" => return Ok(vec!["ruby".to_owned(), source]),
        "sh" => return Ok(vec!["bash".to_owned(), source]),
        "js" => return Ok(vec!["node".to_owned(), source]),
        "php" => return Ok(vec!["php".to_owned(), source]),
        "pl" => return Ok(vec!["perl".to_owned(), source]),
        "java" => {
            let dir = dir.display().to_string();
            said(&format!("javac -d {dir} {source}"))?;
            return Ok(["java", "-cp", &dir, case.name()].map(str::to_owned).to_vec());
        }
        // The file python3 may be a script that looks for an interpreter.
        "py" => return Ok(vec![said("python3 -c 'import sys; print(sys.executable)'")?, source]),
        other => return Err(format!("{}: nothing is known to run .{other} with", case.file)),
    };
    said(&build).map(|_| vec![binary])
}

/// Returns the command that runs `program` with words, which are arguments or variables as
/// `NAME=VALUE`.
pub fn command(program: &[String], words: &[String]) -> Vec<String> {
    let (variables, arguments): (Vec<String>, Vec<String>) =
        words.iter().cloned().partition(|word| word.contains('='));
    let env = (!variables.is_empty()).then(|| "env".to_owned());
    env.into_iter().chain(variables).chain(program.iter().cloned()).chain(arguments).collect()
}

/// Returns the output of a script.
fn said(script: &str) -> Result<String, String> {
    let run = Command::new("bash").args(["-c", script]).output().map_err(|e| format!("bash: {e}"))?;
    if !run.status.success() {
        return Err(format!("{script}: {}", String::from_utf8_lossy(&run.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&run.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn variables_stand_before_the_program() {
        let program = words(&["./a"]);
        assert_eq!(command(&program, &words(&["cured"])), ["./a", "cured"]);
        assert_eq!(command(&program, &words(&["b", "X=1", "Y=2"])), ["env", "X=1", "Y=2", "./a", "b"]);
    }
}
