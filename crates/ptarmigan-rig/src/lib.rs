//! A hosted machine of the library under the eyes of the sanitizer.
