import js from '@eslint/js';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['lib/**', 'node_modules/**'] },
  js.configs.recommended,
  ...tseslint.configs.recommendedTypeChecked,
  {
    languageOptions: {
      parserOptions: { project: './tsconfig.test.json', tsconfigRootDir: import.meta.dirname }
    },
    rules: {
      curly: ['error', 'all'],
      eqeqeq: 'error',
      'no-console': 'error',
      '@typescript-eslint/unbound-method': 'off', // Lumino's signals take the object beside the method
      'no-restricted-properties': [
        'error',
        { property: 'innerHTML', message: 'What the kernel tells is text: use textContent.' },
        { property: 'outerHTML', message: 'What the kernel tells is text: use textContent.' },
        { property: 'insertAdjacentHTML', message: 'What the kernel tells is text.' }
      ],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
      '@typescript-eslint/prefer-nullish-coalescing': 'error'
    }
  }
);
