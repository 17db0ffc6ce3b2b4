"""The template against cfn-lint, AWS's own rules for cfn-guard, and ours in template.guard."""
